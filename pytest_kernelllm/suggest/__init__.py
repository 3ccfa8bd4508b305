"""Patches that adopt kernels: the path of the kernel module, the edit of the marker, the patch for ``git apply``."""
