"""Emulates TF32: where PyTorch may use it, a library's choice of algorithm decides whether a result has 10 or 23 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pytest_kernelllm.judge.shared.dispatch_mode import DispatchMode

aten = torch.ops.aten

CONVOLUTIONS: Mapping[Any, tuple[int, ...]] = {
    aten.convolution.default: (0, 1),
    aten.convolution_backward.default: (0, 1, 2),
}
"""Operations, with the positions of the factors among their arguments."""

PRODUCTS: Mapping[Any, tuple[int, ...]] = {
    aten.mm.default: (0, 1),
    aten.bmm.default: (0, 1),
    aten.addmm.default: (1, 2),
    aten.baddbmm.default: (1, 2),
}

DROPPED = 13
"""Last bits of a float32 number that TF32 lacks."""


def allowed_operations() -> Mapping[Any, tuple[int, ...]]:
    """Returns the operations that may use TF32 on a GPU under PyTorch's present settings."""
    allowed: dict[Any, tuple[int, ...]] = {}
    convolutions: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]  # which torch's types lack
    if convolutions.fp32_precision == "tf32":
        allowed |= CONVOLUTIONS
    if torch.backends.cuda.matmul.fp32_precision == "tf32":
        allowed |= PRODUCTS
    return allowed


class InTf32(DispatchMode):
    """Rounds the float32 factors of some operations to TF32's bits; ``used`` says whether there were any."""

    def __init__(self, operations: Mapping[Any, tuple[int, ...]]) -> None:
        """``operations`` are as in ``CONVOLUTIONS``."""
        super().__init__()
        self.used = False
        self._operations = operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation."""
        given = list(args)
        for position in self._operations.get(func, ()):
            if isinstance(given[position], torch.Tensor) and given[position].dtype == torch.float32:
                given[position] = _rounded(given[position])
                self.used = True
        return func(*given, **(kwargs or {}))


def _rounded(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the nearest numbers whose last bits are zero; NaN and infinities as they are."""
    bits = tensor.contiguous().view(torch.int32) + (1 << DROPPED - 1)
    return torch.where(tensor.isfinite(), (bits >> DROPPED << DROPPED).view(torch.float32), tensor)
