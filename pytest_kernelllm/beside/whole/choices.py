"""What may make a model faster; each is tried on the model itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    freezes: bool = False
    """Whether weights become constants of the compiled code."""
    alternatives: tuple[Choice, ...] = ()
    """What is tried in its place, one after the other, where it does not pay."""


CUDA_GRAPHS = Choice("CUDA graphs", {"triton.cudagraphs": True})
COMPILER: tuple[Choice, ...] = (
    Choice("coordinate descent", {"coordinate_descent_tuning": True}),
    Choice("combined kernels", {"combo_kernels": True}),
    Choice("tuned pointwise kernels", {"max_autotune_pointwise": True}),
    Choice("several forms of reductions", {"triton.multi_kernel": 1}),
    Choice("tuned products", {"max_autotune_gemm": True}),
)
FREEZING = Choice("weights as constants", {"freezing": True}, freezes=True)


def choices(kernels: Mapping[str, str], *, freeze: bool) -> tuple[Choice, ...]:
    """Returns what is tried, in this order.

    Args:
        kernels: the name of each region that has a kernel, by its key.
        freeze: whether weights may become constants.
    """
    with_kernels: Sequence[Choice] = ()
    if kernels:
        single = tuple(Choice(f"the kernel of {name}", regions=(key,)) for key, name in kernels.items())
        together = Choice(f"{len(kernels)} kernels together", regions=tuple(kernels), alternatives=single)
        with_kernels = (together,) if len(kernels) > 1 else single
    return (CUDA_GRAPHS, *with_kernels, *COMPILER, *((FREEZING,) if freeze else ()))
