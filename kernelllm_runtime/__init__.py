"""Runs the Triton kernels that ``pytest --kernelllm`` verified: all that production code needs, without pytest.

It imports only the standard library until the first class with an adopted kernel is defined, and then torch.
"""

from kernelllm_runtime.adopted import KernelLLMWarning, explain
from kernelllm_runtime.marker import triton_candidate

__version__ = "0.1.0"
__all__ = ["KernelLLMWarning", "__version__", "explain", "triton_candidate"]
