"""What may make a model faster; each is tried on the model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Choice:
    """One change of how the model is compiled."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """TorchInductor's."""
    regions: tuple[str, ...] = ()
    """Keys of the regions that run kernels then; without any, those that do so far stay."""
    attention: str = ""
    """The library that computes attention where it can."""
    needs: str = ""
    """Part of the name of a function without which a model gains nothing by it."""
    freezes: bool = False
    """Whether weights become constants of the compiled code."""
    unless: str = ""
    """Name of the choice that makes this one needless where it is kept."""


CUDA_GRAPHS = Choice("CUDA graphs", {"triton.cudagraphs": True})
COMPILER: tuple[Choice, ...] = (
    Choice("attention by cuDNN", attention="cudnn", needs="attention"),
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
    together = Choice(f"{len(kernels)} kernels together", regions=tuple(kernels))
    single = tuple(
        Choice(f"the kernel of {name}", regions=(key,), unless=together.name) for key, name in kernels.items()
    )
    # One after the other takes long, so they come last.
    first, last = ((together,), single) if len(single) > 1 else (single, ())
    tried = (CUDA_GRAPHS, *first, *COMPILER, *((FREEZING,) if freeze else ()), *last)
    return tuple(each for each in tried if not each.needs or calls(each.needs))
