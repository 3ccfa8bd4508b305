"""What is beside the way from a mark to a patch: nothing on the way imports it, and ``cli`` finds its commands by name."""
