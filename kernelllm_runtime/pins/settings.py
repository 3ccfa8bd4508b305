"""Pins of PyTorch's settings: in which precision float32 convolutions and products may be computed."""

from __future__ import annotations

import operator
from typing import Any

import torch

PREFIX = "setting:"
CONVOLUTIONS = f"{PREFIX}torch.backends.cudnn.conv.fp32_precision"
PRODUCTS = f"{PREFIX}torch.backends.cuda.matmul.fp32_precision"
TF32 = "tf32"
"""Their value where PyTorch's libraries may use TF32, which the first one has by default."""


def setting(name: str) -> str:
    """Returns the present value of a setting, by the name of its pin; empty in a version of torch that lacks it."""
    owner, attribute = holder(name)
    return str(getattr(owner, attribute, ""))


def holder(name: str) -> tuple[Any, str]:
    """Returns the object that holds a setting and the attribute's name, by the name of its pin."""
    path, _, attribute = name.removeprefix(f"{PREFIX}torch.").rpartition(".")
    try:
        return operator.attrgetter(path)(torch), attribute
    except AttributeError:
        return None, attribute
