"""Pairs of public Triton kernels and the PyTorch operations that they stand for, cut out of checkouts."""
