"""Finds out which shapes a target's inputs take by calling the user's callables at several sizes."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm_judge.core.targets import Scalar, TensorSpec
from kernelllm_judge.target.attributes import dtype_name, is_scalar
from kernelllm_judge.target.errors import TargetError

Sizes = dict[str, int]
Ranges = dict[str, tuple[int, int]]
Described = dict[str, TensorSpec | Scalar]
Probe = Callable[[Sizes], dict[str, Any]]
"""Calls the user's callable at given sizes and returns the arguments by parameter name of ``forward``."""


@dataclass(frozen=True)
class InputLayout:
    """How the arguments from one inputs callable depend on the named dimensions."""

    inputs: Described
    dims: dict[str, tuple[int, int]]
    sizes: Sizes


def used_dims(make: Callable[..., Any], dims: Mapping[str, tuple[int, int]], where: str) -> Sizes:
    """Returns the dimensions that a callable takes as parameters, with their default sizes.

    Raises:
        TargetError: a default is missing or out of range.
    """
    parameters = inspect.signature(make).parameters
    defaults: Sizes = {}
    for name, (low, high) in dims.items():
        if name not in parameters:
            continue
        default = parameters[name].default
        if isinstance(default, bool) or not isinstance(default, int):
            raise TargetError(f"{where}: `{name}` needs a default size, such as `{name}: int = {low}`.")
        if not low <= default <= high:
            raise TargetError(
                f"{where}: the default {name}={default} lies outside dims[{name!r}] = ({low}, {high}); "
                "change one of them."
            )
        defaults[name] = default
    return defaults


def layout(probe: Probe, defaults: Sizes, dims: Mapping[str, tuple[int, int]], where: str) -> InputLayout:
    """Replaces sizes in the arguments' shapes by the dimensions that they follow.

    A dimension whose size appears in the shapes unchanged is free; one that changes the arguments in any
    other way stays at its default.

    Raises:
        TargetError: an argument is neither a tensor nor a plain value, or the callable fails at some size.
    """
    free = [name for name in defaults if dims[name][0] < dims[name][1]]
    while True:
        sizes = _samples(free, defaults, dims)
        shown = [described(probe(sample), where) for sample in sizes]
        bound = _bound(free, sizes, shown)
        if not bound:
            break
        free = [name for name in free if name not in bound]
    inputs: Described = {}
    appearing: set[int | str | None] = set()
    for name, value in shown[-1].items():
        if isinstance(value, TensorSpec):
            shape = tuple(_entry(column, sizes, free) for column in _columns(name, shown))
            appearing.update(shape)
            value = TensorSpec(value.dtype, tuple(entry for entry in shape if entry is not None))
        inputs[name] = value
    kept = [name for name in free if name in appearing]
    return InputLayout(inputs, {name: dims[name] for name in kept}, {name: defaults[name] for name in kept})


def _samples(free: list[str], defaults: Sizes, dims: Mapping[str, tuple[int, int]]) -> list[Sizes]:
    """Returns small distinct sizes, then each dimension changed alone, then the default sizes."""
    counter = itertools.count(3, 2)
    start = {name: _clamp(next(counter), dims[name]) for name in free}
    changed = [{**start, name: _clamp(start[name] + 1, dims[name], other_than=start[name])} for name in free]
    return [{**defaults, **sizes} for sizes in ([start, *changed] if free else [])] + [defaults]


def _clamp(size: int, bounds: tuple[int, int], other_than: int | None = None) -> int:
    size = min(max(size, bounds[0]), bounds[1])
    return size - 1 if size == other_than else size


def described(arguments: Mapping[str, Any], where: str) -> Described:
    """Returns the arguments' shapes and dtypes, and plain values as they are.

    Raises:
        TargetError: one is neither a tensor nor a plain value.
    """
    shown: Described = {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            shown[name] = TensorSpec(dtype_name(value.dtype), tuple(value.shape))
        elif is_scalar(value):
            shown[name] = value
        else:
            raise TargetError(
                f"{where}: the argument `{name}` is a {type(value).__name__}; forward's arguments must be "
                "tensors, plain values (int, float, bool, str, None), or tuples, lists and dicts of them."
            )
    return shown


def _bound(free: list[str], sizes: list[Sizes], shown: list[Described]) -> set[str]:
    """Returns the dimensions that change the arguments in a way that their names cannot express."""
    forms = [_form(sample) for sample in shown]
    alone = list(zip(free, range(1, len(free) + 1), strict=True))  # the sample in which only that one changed
    if bound := {name for name, i in alone if forms[i] != forms[0]}:
        return bound
    if forms[-1] != forms[0]:
        return set(free)
    for argument in shown[0]:
        for column in _columns(argument, shown):
            if _entry(column, sizes, free) is None:
                bound |= {name for name, i in alone if column[i] != column[0]} or set(free)
    return bound


def _form(shown: Described) -> dict[str, object]:
    """Returns everything about the arguments except their sizes."""
    return {
        name: (value.dtype, len(value.shape)) if isinstance(value, TensorSpec) else (type(value), value)
        for name, value in shown.items()
    }


def _columns(argument: str, shown: list[Described]) -> list[tuple[int | str, ...]]:
    """Returns the sizes at each position of a tensor's shape, one from every sample."""
    shapes = [value.shape for sample in shown if isinstance(value := sample[argument], TensorSpec)]
    return list(zip(*shapes, strict=True))


def _entry(column: tuple[int | str, ...], sizes: list[Sizes], free: list[str]) -> int | str | None:
    """Returns the constant size or the dimension at one position of a shape; None if it is neither."""
    if len(set(column)) == 1:
        return column[0]
    return next((name for name in free if column == tuple(sample[name] for sample in sizes)), None)
