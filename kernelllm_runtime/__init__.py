"""Runs the Triton kernels that ``pytest --kernelllm`` verified: all that production code needs, without pytest.

It imports only the standard library until the first class with an adopted kernel is defined, and then torch.
"""

from typing import TYPE_CHECKING, Any

from kernelllm_runtime.adopted import KernelLLMWarning, explain
from kernelllm_runtime.marker import triton_candidate

if TYPE_CHECKING:
    from kernelllm_runtime.placing import place_kernels

__version__ = "0.1.0"
"""Of all three distributions."""
__all__ = ["KernelLLMWarning", "__version__", "explain", "place_kernels", "triton_candidate"]


def __getattr__(name: str) -> Any:
    """Imports what needs torch when it is asked for."""
    if name == "place_kernels":
        from kernelllm_runtime.placing import place_kernels

        return place_kernels
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
