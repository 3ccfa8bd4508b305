"""The form of a call: everything except the module that the choice between kernel and original depends on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm_runtime.domain import PLAIN, aligned
from kernelllm_runtime.generated import define, holding
from kernelllm_runtime.leaves import KIND, containers, leaves
from kernelllm_runtime.watch import Watch

try:
    from torch._C._dynamo.guards import TensorGuards

    _Guards: type[TensorGuards] | None = TensorGuards
except ImportError:  # it is private, so a later torch may not have it
    _Guards = None


@dataclass(frozen=True, slots=True)
class Form:
    """One form of calls of one module, and what runs them."""

    fits: Callable[..., bool]
    """Whether a call has this form, given the module and its arguments in the order of ``forward``."""
    kernel: Callable[..., Any] | None
    """The kernel module's ``forward``; None for the original."""


def never(*_: Any) -> bool:
    """A ``fits`` that no call fits."""
    return False


def fits(
    watch: Watch,
    tensors: Sequence[torch.Tensor],
    values: Sequence[Any],
    defaults: Sequence[Any],
    placed: bool = False,
) -> Callable[..., bool]:
    """Returns a function that decides whether another call of a module has the same form as this one.

    The module must be unchanged. Calls have the same form if their tensors (arguments, parameters, buffers) have
    the same type, dtype, device, shape, strides, dispatch keys and ``requires_grad``, under the same grad mode if any
    requires a gradient, and their other arguments have the same type and value. Dispatch keys include those around
    the call, and so show whether it is traced, transformed, or under autocast.

    Args:
        values: the arguments: plain tensors, scalars, and tuples, lists and dicts of them.
        defaults: the parameters' defaults. One that is or holds a tensor is told from another value by identity.
        placed: whether calls also differ where some tensor is aligned in one only.
    """
    names = [f"a{index}" for index in range(len(values))]
    plain: list[str] = []
    constants: dict[str, Any] = {}
    first: dict[int, str] = {}
    compared: list[torch.Tensor] = []
    for name, value in zip(names, values, strict=True):
        plain += [_like(*each) for each in containers(name, value)]
    for name, value, default in zip(names, values, defaults, strict=True):
        if any(isinstance(leaf, torch.Tensor) for _, leaf in leaves(name, default)):
            constants[f"{name}_default"] = default
            plain.append(f"{name} is {'' if value is default else 'not '}{name}_default")
    for name, value in (leaf for pair in zip(names, values, strict=True) for leaf in leaves(*pair)):
        if name.endswith(KIND):
            continue  # as are all containers, it is compared already
        if type(value) in PLAIN:
            if first.setdefault(id(value), name) == name:
                compared.append(value)
            else:
                plain.append(f"{name} is {first[id(value)]}")
        elif value is None or value is True or value is False:
            plain.append(f"{name} is {value}")
        else:
            then = f"then{len(constants)}"
            constants |= {then: value, f"{then}_type": type(value)}
            plain.append(f"type({name}) is {then}_type and {name} == {then}")
            if type(value) is float and value == 0:
                constants["copysign"] = math.copysign
                plain.append(f"copysign(1.0, {name}) == {math.copysign(1.0, value)}")
    compared += tensors
    if any(tensor.requires_grad for tensor in compared):
        constants["grad_enabled"] = torch.is_grad_enabled
        plain.append(f"grad_enabled() is {torch.is_grad_enabled()}")
    constants["alike"] = _alike(compared)
    # First what often differs between the calls of one module, then what rarely does.
    every = ", ".join((*first.values(), *watch.tensors))
    behind = [f"alike({every})", *watch.conditions]
    if placed:
        constants["aligned"] = aligned
        behind.append(f"aligned({every}) is {aligned(*compared)}")
    text = holding("fits", ("module", *names), (*plain, *behind), "True", "False")
    return define("fits", text, {**watch.names, **constants})


def _like(name: str, container: Any) -> str:
    """The condition that another argument is such a tuple, list or dict, with as many parts or the same keys."""
    kind = type(container)
    inside = f"[*{name}] == {[*container]!r}" if kind is dict else f"len({name}) == {len(container)}"
    return f"type({name}) is {kind.__name__} and {inside}"


def _alike(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    if _Guards is None:
        return never  # every call is checked in full
    # The guards of torch.compile, in C++.
    guards = _Guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    return guards.check
