"""Faster Triton kernels you can trust, from pytest. Imports nothing heavy: marked classes live in production code."""

from typing import TYPE_CHECKING, Any

from pytest_kernelllm.marker import triton_candidate

if TYPE_CHECKING:
    from pytest_kernelllm.runtime import optimize_model as optimize_model

__version__ = "0.1.0"
__all__ = ["__version__", "triton_candidate"]
