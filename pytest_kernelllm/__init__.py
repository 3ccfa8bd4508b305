"""Faster Triton kernels you can trust, from pytest. Cheap to import: it is part of production code."""

from pytest_kernelllm.marker import triton_candidate

__version__ = "0.1.0"
__all__ = ["__version__", "triton_candidate"]
