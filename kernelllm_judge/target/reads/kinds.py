"""Tells kinds of values and classes apart."""

from __future__ import annotations

import types
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from kernelllm_runtime.pins.functions import is_basic
from kernelllm_runtime.pins.objects import INTERNAL, state_of


def own_attributes(part: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yields a module's own attributes, without what ``nn.Module`` itself keeps."""
    for name, value in state_of(part).items():
        if name not in INTERNAL:
            yield name, value


def is_fixed(tensor: torch.Tensor) -> bool:
    """Returns whether the judge leaves a parameter or buffer at its value, because its dtype is no floating one."""
    return not tensor.is_floating_point()


def is_torch(cls: type) -> bool:
    """Returns whether a class is one of torch or a builtin."""
    return cls.__module__.partition(".")[0] in ("torch", "builtins")


def is_opaque(value: Any) -> bool:
    """Returns whether an object of a library is pinned as a whole."""
    return is_basic(type(value).__module__) and not isinstance(value, types.SimpleNamespace | Namespace)


def is_value(value: Any) -> bool:
    """Returns whether an entry of a class is a value, and not the place of a slot or what an abstract class keeps for itself."""
    places = types.MemberDescriptorType | types.GetSetDescriptorType
    return not isinstance(value, places) and type(value).__module__ != "_abc"


def is_generated(function: Any) -> bool:
    """Returns whether a method was generated, as those of dataclasses are; it counts where it ran."""
    return isinstance(function, types.FunctionType) and function.__code__.co_filename == "<string>"
