"""Renders hand-style answers: Triton kernels and a ``ModelNew`` class."""
