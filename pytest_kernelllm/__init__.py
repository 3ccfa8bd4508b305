"""Faster Triton kernels you can trust, from pytest. Cheap to import: it is part of production code."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelllm_runtime import __version__, triton_candidate

if TYPE_CHECKING:
    from kernelllm_judge.in_memory import adopt, judge
    from pytest_kernelllm.beside.optimize.model import optimize_model
    from pytest_kernelllm.beside.ranking.model import rank
    from pytest_kernelllm.beside.whole.model import compile_model
    from pytest_kernelllm.models.kernelllm import KernelLLM

__all__ = [
    "KernelLLM",
    "__version__",
    "adopt",
    "compile_model",
    "judge",
    "optimize_model",
    "rank",
    "triton_candidate",
]


_HOMES = {
    "KernelLLM": "pytest_kernelllm.models.kernelllm",
    "adopt": "kernelllm_judge.in_memory",
    "compile_model": "pytest_kernelllm.beside.whole.model",
    "judge": "kernelllm_judge.in_memory",
    "optimize_model": "pytest_kernelllm.beside.optimize.model",
    "rank": "pytest_kernelllm.beside.ranking.model",
}


def __getattr__(name: str) -> Any:
    """What production code does not need is imported when it is asked for."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
