"""What may make a model faster; each is tried on the model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_kernelllm.core.words import counted


@dataclass(frozen=True)
class Choice:
    """One change of how the model is compiled."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """TorchInductor's."""
    regions: tuple[str, ...] | None = None
    """Keys of more regions that run kernels then; empty: none does; None: those that do so far."""
    attention: str = ""
    """The library that computes attention where it can."""
    needs: str = ""
    """Part of the name of a function without which a model gains nothing by it."""
    freezes: bool = False
    """Whether weights become constants of the compiled code."""
    unless: str = ""
    """Name of the choice that makes this one needless where it is kept."""


CUDA_GRAPHS = Choice("CUDA graphs", {"triton.cudagraphs": True})
ALONE = replace(CUDA_GRAPHS, name="CUDA graphs without kernels", regions=())
COMPILER: tuple[Choice, ...] = (
    Choice("attention by cuDNN", attention="cudnn", needs="attention"),
    Choice("attention by FlashAttention", attention="flash", needs="attention"),
    Choice("coordinate descent", {"coordinate_descent_tuning": True}),
    Choice("combined kernels", {"combo_kernels": True}),
    Choice("tuned pointwise kernels", {"max_autotune_pointwise": True}),
    Choice("several forms of reductions", {"triton.multi_kernel": 1}),
    Choice("tuned products", {"max_autotune_gemm": True}),
    Choice(
        "tuned products through TMA",
        {"max_autotune_gemm": True, "triton.enable_persistent_tma_matmul": True},
    ),
    Choice("channels last", {"force_layout_optimization": True}, needs="conv"),
)
FREEZING = Choice("weights as constants", {"freezing": True}, freezes=True)


def choices(
    kernels: Mapping[str, str], *, freeze: bool, calls: Callable[[str], bool] = lambda part: True
) -> tuple[Choice, ...]:
    """Returns what is tried, in this order.

    Args:
        kernels: the name of each region that has a kernel, by its key.
        freeze: whether weights may become constants.
        calls: whether the model calls a function with a part of a name.
    """
    number = counted(len(kernels), "kernel")
    together = Choice(f"{number} together" if len(kernels) > 1 else number, regions=tuple(kernels))
    both = replace(together, name=f"CUDA graphs and {number}", options=CUDA_GRAPHS.options)
    single = tuple(Choice(f"the kernel of {name}", regions=(key,)) for key, name in kernels.items())
    # Both pay nearly always, so one compilation often is enough. One kernel after the other takes long, so that comes last.
    first = (both, ALONE, replace(together, unless=both.name)) if kernels else (CUDA_GRAPHS,)
    last = tuple(replace(each, unless=together.name) for each in single) if len(single) > 1 else ()
    tried = (*first, *COMPILER, *((FREEZING,) if freeze else ()), *last)
    return tuple(each for each in tried if not each.needs or calls(each.needs))
