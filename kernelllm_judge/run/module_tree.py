"""Serialises a module's state as a tree, from which a worker builds its stand-in for ``self``."""

from __future__ import annotations

import math
from collections.abc import Collection
from types import FunctionType
from typing import Any

import numpy
import torch

from kernelllm_judge.core.parts import container
from kernelllm_judge.core.targets import Domain
from kernelllm_judge.shared.buffers import Allocator


def module_tree(
    module: torch.nn.Module,
    allocator: Allocator,
    buffers: dict[str, torch.Tensor],
    given: Collection[str],
    prefix: str = "",
    seen: dict[int, Any] | None = None,
) -> dict[str, Any]:
    """Returns a module's state as JSON: tensors as shared buffers, plain attributes, and submodules nested.

    Methods, hooks and all other values are left out: a worker cannot call the original. So are attributes that the domain
    does not pin, because a kernel that depends on one would run for modules with another.

    Args:
        allocator: allocates the shared buffers.
        buffers: receives the shared buffer of each parameter and module buffer by dotted name.
        given: the result of ``given_by``.
        prefix: prepended to those names.
        seen: by ``id``, the buffers of tensors and the numbers of objects that were there before: what has two names here
            is one object in the worker as well.
    """
    seen = {} if seen is None else seen
    values: dict[str, Any] = {}
    # Not by named_parameters and named_children: what has several names is there under each.
    for name, tensor in {**module._parameters, **module._buffers}.items():
        values[name] = None
        if tensor is not None:
            if id(tensor) not in seen:
                seen[id(tensor)] = in_buffer(tensor, allocator)
            buffers[prefix + name], description = seen[id(tensor)]
            needs = {"requires_grad": tensor.requires_grad} if name in module._parameters else {}
            values[name] = {"buffer": description, **needs}
    for name, value in _values_of(module).items():
        if f"{prefix}{name}" in given or name == "_reversed_padding_repeated_twice":
            plain(values, name, value)
    values |= {name: None for name, child in module._modules.items() if child is None}
    children = {
        **{
            name: module_tree(child, allocator, buffers, given, f"{prefix}{name}.", seen)
            for name, child in module._modules.items()
            if child is not None
        },
        **{
            name: _namespace(value, given, f"{prefix}{name}.", seen)
            for name, value in vars(module).items()
            if _is_namespace(name, value)
        },
    }
    held = container(module)
    return {
        "number": seen.setdefault(id(module), len(seen)),
        "class": f"{type(module).__module__}.{type(module).__qualname__}",
        "training": module.training,
        "values": values,
        "children": children,
        "container": held and {"kind": held.kind, "names": held.names},
        "withheld": sorted({*dir(module)} - {*values, *children, *dir(torch.nn.Module())}),
    }


def _values_of(thing: Any) -> dict[str, Any]:
    """Returns an object's own values, and those of its class that it does not hide."""
    of_class = (vars(base) for base in reversed(type(thing).__mro__))
    return {name: value for values in (*of_class, vars(thing)) for name, value in values.items()}


def given_by(domain: Domain) -> frozenset[str]:
    """Returns the dotted names of the attributes whose values a domain determines."""
    return frozenset(name.removeprefix("value:").partition("[")[0] for name in domain.attributes)


def plain(values: dict[str, Any], name: str, value: Any) -> None:
    """Adds ``value`` to ``values`` as JSON if it is a scalar, a dtype, or a tuple or list of scalars."""
    if value is None or isinstance(value, bool | int | str):
        values[name] = value
    elif isinstance(value, float):
        values[name] = {"float": float.__repr__(value)}  # JSON has no inf and nan
    elif isinstance(value, numpy.number | numpy.bool_):
        plain(values, name, value.item())
    elif isinstance(value, torch.dtype):
        values[name] = {"dtype": str(value).removeprefix("torch.")}
    elif isinstance(value, tuple | list) and all(
        isinstance(v, bool | int | str | None) or (isinstance(v, float) and math.isfinite(v)) for v in value
    ):
        values[name] = {"tuple" if isinstance(value, tuple) else "list": list(value)}


def in_buffer(tensor: torch.Tensor, allocator: Allocator) -> tuple[torch.Tensor, dict[str, Any]]:
    """Copies ``tensor`` to a shared buffer; returns the buffer and its description for the worker."""
    buffer, description = allocator.buffer(tensor.shape, tensor.dtype)
    buffer.copy_(tensor.detach())
    return buffer, description


def _is_namespace(name: str, value: Any) -> bool:
    skipped = (torch.nn.Module, torch.Tensor, type, FunctionType, dict, list, tuple)
    return not name.startswith("_") and hasattr(value, "__dict__") and not isinstance(value, skipped)


def _namespace(value: Any, given: Collection[str], prefix: str, seen: dict[int, Any]) -> dict[str, Any]:
    """Returns a configuration object's plain values."""
    values: dict[str, Any] = {}
    for name, item in _values_of(value).items():
        if f"{prefix}{name}" in given:
            plain(values, name, item)
    return {
        "number": seen.setdefault(id(value), len(seen)),
        "class": "",
        "values": values,
        "children": {},
        "withheld": sorted({*dir(value)} - {*values, *dir(object())}),
    }
