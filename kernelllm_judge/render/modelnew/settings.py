"""The record of an attribute that a completion's ``__init__`` sets."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from kernelllm_judge.render.modelnew.tensors import OwnTensor
from kernelllm_judge.render.modelnew.values import KnownValue


@dataclass(frozen=True)
class Setting:
    """An attribute that the constructor sets."""

    kind: Literal["value", "tensor", "alias", "layer", "module", "other"]
    line: int
    text: str
    """The right-hand side, for messages."""
    value: KnownValue | None = None
    tensor: OwnTensor | None = None
    form: ast.expr | None = None
    """What an ``alias`` stands for: an expression over ``self``, such as ``self.conv.weight.half()``."""
    layer: str = ""
    """The class of a layer, such as ``torch.nn.Linear``; of a ``module``, a class of the completion."""
    args: tuple[KnownValue, ...] = ()
    """The arguments with which a layer or module is built."""
    kwargs: tuple[tuple[str, KnownValue], ...] = ()
    parts: tuple[Setting, ...] = ()
    """What the completion puts into an ``nn.Sequential`` or ``nn.ModuleList``, if that is known."""
