"""What the judge and its workers both use: the channel, shared buffers, the clock, and how outputs are described."""
