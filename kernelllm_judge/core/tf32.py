"""Which operations PyTorch's settings let its libraries compute in TF32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kernelllm_runtime.pins.settings import CONVOLUTION_PRECISION, PRODUCT_PRECISION, TF32, setting

aten = torch.ops.aten

Factors = Mapping[Any, tuple[int, ...]]
"""Operations, with the positions of the factors among their arguments."""

CONVOLUTIONS: Factors = {aten.convolution.default: (0, 1), aten.convolution_backward.default: (0, 1, 2)}
PRODUCTS: Factors = {
    aten.mm.default: (0, 1),
    aten.bmm.default: (0, 1),
    aten.addmm.default: (1, 2),
    aten.baddbmm.default: (1, 2),
}
_GOVERNED: Mapping[str, Factors] = {CONVOLUTION_PRECISION: CONVOLUTIONS, PRODUCT_PRECISION: PRODUCTS}


def allowed() -> dict[str, Factors]:
    """Returns the operations that may use TF32 on a GPU under PyTorch's present settings, by the name of the setting's pin."""
    return {name: factors for name, factors in _GOVERNED.items() if setting(name) == TF32}
