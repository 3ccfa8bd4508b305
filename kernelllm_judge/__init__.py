"""Judges Triton kernels against the PyTorch modules that they replace. Cheap to import."""

from typing import TYPE_CHECKING, Any

from kernelllm_runtime import __version__

if TYPE_CHECKING:
    from kernelllm_judge.in_memory import JudgedKernel, adopt, judge

__all__ = ["JudgedKernel", "__version__", "adopt", "judge"]


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is asked for."""
    if name in ("JudgedKernel", "adopt", "judge"):
        from kernelllm_judge import in_memory

        return getattr(in_memory, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
