"""Code that judge and worker share: channel, buffers, clock, and descriptions of outputs."""
