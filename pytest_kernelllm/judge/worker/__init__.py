"""The untrusted side, and what both sides share: channel, slabs, clock."""
