"""Faster Triton kernels you can trust, from pytest. Cheap to import: it is part of production code."""

from typing import TYPE_CHECKING, Any

from kernelllm_runtime import triton_candidate

if TYPE_CHECKING:
    from pytest_kernelllm.models.kernelllm import KernelLLM
    from pytest_kernelllm.optimize.model import optimize_model
    from pytest_kernelllm.ranking.model import rank
    from pytest_kernelllm.verify.in_memory import adopt, judge

__version__ = "0.1.0"
__all__ = ["KernelLLM", "__version__", "adopt", "judge", "optimize_model", "rank", "triton_candidate"]


def __getattr__(name: str) -> Any:
    """What production code does not need is imported when it is asked for."""
    if name == "KernelLLM":
        from pytest_kernelllm.models.kernelllm import KernelLLM

        return KernelLLM
    if name == "optimize_model":
        from pytest_kernelllm.optimize.model import optimize_model

        return optimize_model
    if name == "rank":
        from pytest_kernelllm.ranking.model import rank

        return rank
    if name == "adopt":
        from pytest_kernelllm.verify.in_memory import adopt

        return adopt
    if name == "judge":
        import pytest_kernelllm.judge as judge  # the package, which can be called

        return judge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
