"""Pins of PyTorch's settings: in which precision float32 convolutions and products may be computed."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

PREFIX = "setting:"
CONVOLUTION_PRECISION = f"{PREFIX}torch.backends.cudnn.conv.fp32_precision"
PRODUCT_PRECISION = f"{PREFIX}torch.backends.cuda.matmul.fp32_precision"
TF32 = "tf32"
"""Their value where PyTorch's libraries may use TF32, which the first one has by default."""

_PRIVATE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {CONVOLUTION_PRECISION: ("cuda", "conv"), PRODUCT_PRECISION: ("cuda", "matmul")}
)
"""What the settings' own properties ask, in a fifth of their time."""


def setting(name: str) -> str:
    """Returns the present value of a setting, by the name of its pin; ``missing`` in a version of torch that lacks it."""
    return reader(name)()


def reader(name: str) -> Callable[[], str]:
    """Returns what reads a setting, by the name of its pin."""
    private = getattr(torch._C, "_get_fp32_precision_getter", None)
    if private is not None and name in _PRIVATE:
        return functools.partial(private, *_PRIVATE[name])
    try:
        read = operator.attrgetter(name.removeprefix(f"{PREFIX}torch."))
        read(torch)
    except AttributeError:
        return lambda: "missing"
    return lambda: str(read(torch))
