"""Names that users import: what adopted classes do at run time is in ``kernelllm_runtime``."""

from kernelllm_runtime.adopted import DISPATCHER, KernelLLMWarning, explain

__all__ = ["DISPATCHER", "KernelLLMWarning", "explain"]
