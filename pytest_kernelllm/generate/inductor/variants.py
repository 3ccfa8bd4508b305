"""The variants in which TorchInductor compiles a module; each may give another candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_kernelllm.generate.render.inductor.sections import Tuning


@dataclass(frozen=True)
class Variant:
    """One way to compile a module."""

    note: str
    tuning: Tuning = field(default_factory=Tuning)
    config: Mapping[str, Any] = field(default_factory=dict)
    """TorchInductor options."""


VARIANTS = (
    Variant("Inductor's fusion, its usual block sizes"),
    Variant("larger blocks", Tuning(pointwise=4096, pointwise_warps=8, reduction=4096, rows=4)),
    Variant("reductions not split", Tuning(reduction=4096), {"split_reductions": False}),
    Variant("looped reductions", Tuning(reduction=1024), {"triton.persistent_reductions": False}),
    Variant("fewer warps", Tuning(pointwise=512, pointwise_warps=2, reduction=1024, reduction_warps=2)),
    Variant("more warps", Tuning(pointwise=2048, pointwise_warps=8, reduction=8192, reduction_warps=16)),
    Variant(
        "looped reductions, not split",
        Tuning(reduction=2048),
        {"triton.persistent_reductions": False, "split_reductions": False},
    ),
)
"""The most promising variants come first; those that do not change a target's code are left out."""
