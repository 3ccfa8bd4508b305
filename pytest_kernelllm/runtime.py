"""Names that users import: what adopted classes do at run time is in ``kernelllm_runtime``."""

from kernelllm_runtime.adopted import DISPATCHER, KernelLLMWarning, adopt, explain

__all__ = ["DISPATCHER", "KernelLLMWarning", "adopt", "explain"]
