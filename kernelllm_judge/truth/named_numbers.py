"""Finds the integers that mean something to a module: those that it names, and the last index of each tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

MOST = 8
"""Most numbers of each origin."""


def named_numbers(module: nn.Module, arguments: Mapping[str, Any]) -> list[int]:
    """Returns attributes of the module and its parts, constants of its ``forward``, and greatest indices."""
    attributes = [value for part in module.modules() for value in vars(part).values()]
    forward = getattr(type(module), "forward", None)
    constants = _constants(forward.__code__) if isinstance(forward, FunctionType) else ()
    given = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
    tensors = (*given, *module.parameters(), *module.buffers())
    last = sorted({size - 1 for tensor in tensors for size in tensor.shape}, reverse=True)
    return list(dict.fromkeys([*_first(attributes), *_first(constants), *_first(last)]))


def _first(values: Iterable[Any]) -> list[int]:
    return list(dict.fromkeys(v for v in values if type(v) is int))[:MOST]


def _constants(code: CodeType) -> Iterator[Any]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _constants(constant)
        elif isinstance(constant, tuple):
            yield from constant
        else:
            yield constant
