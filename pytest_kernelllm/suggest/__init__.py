"""Patches that adopt kernels: where the kernel goes, how the marker changes, what ``git apply`` gets."""
