"""The marker under the name that older code imports it by; it is defined in ``kernelllm_runtime.marker``."""

from kernelllm_runtime.marker import OPTIONS_ATTRIBUTE, Options, triton_candidate

__all__ = ["OPTIONS_ATTRIBUTE", "Options", "triton_candidate"]
