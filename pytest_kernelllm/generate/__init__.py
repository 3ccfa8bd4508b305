"""Generators write completions; ``render`` turns each into a kernel module."""
