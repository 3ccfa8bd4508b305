"""Decides whether a call is inside a domain; this module defines the meaning of the fields of ``Domain``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from kernelllm_runtime.leaves import KIND, leaves, parameter_of
from kernelllm_runtime.methods import replaced
from kernelllm_runtime.pins.names import pinned, ties
from kernelllm_runtime.pins.objects import MISSING, Unpinnable
from kernelllm_runtime.targets import Domain, TensorSpec, is_pin

PLAIN = (torch.Tensor, nn.Parameter)
"""The types of tensors that kernels accept; a subclass may behave differently."""
SCALARS = (bool, int, float, str, type(None))
ALIGNMENT = 16
"""Bytes at whose multiples tensors start where a kernel needs them aligned."""
_CLASS = ".__class__"
ORDERED = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
"""Modules whose parts may be gone through in order."""


def misfit(domain: Domain, module: nn.Module) -> str | None:
    """Returns why no call of this module in its present state is in a domain, on whichever device; None if some may be."""
    return _structure(domain, module) or _attributes(domain, module, {}, {}) or _pins(domain, module)


def matches(
    domain: Domain, module: nn.Module, bound: inspect.BoundArguments, device_type: str = "cuda"
) -> str | None:
    """Returns why a call is outside a domain; None if it is inside.

    Inside means: the same train/eval mode throughout, the same submodules, every parameter, buffer and plain
    value as listed, every argument as listed and the others at their default; tensors are plain, strided,
    contiguous and on one device, with sizes in the ranges of ``domain.dims``; no gradients are required unless
    the kernel computes them, and tensors are aligned if the domain says so. Neither the module nor the arguments are changed.

    Args:
        bound: the arguments, bound to the original ``forward``'s signature without ``self``; defaults need
            not be applied.
        device_type: the type of device that the tensors must be on.
    """
    devices: dict[torch.device, str] = {}
    sizes: dict[str, int] = {}
    return (
        _structure(domain, module)
        or _attributes(domain, module, sizes, devices)
        or _pins(domain, module)
        or _arguments(domain, bound, sizes, devices)
        or _devices(devices, device_type)
        or _gradients(domain, module, bound)
        or _misaligned(domain, module, bound)
    )


def tensor_problem(value: Any) -> str | None:
    """Returns why a value is not a plain tensor that kernels accept, as the end of a sentence; None if it is one."""
    if type(value) not in PLAIN:
        return f"is a {type(value).__qualname__}, not a plain tensor"
    if value.is_nested or value.layout is not torch.strided:
        return "is not a strided tensor"
    if not value.is_contiguous():
        return "is not contiguous"
    if not _has_own_strides(value):
        return "has strides that a new tensor of its shape would not have"
    if not torch.compiler.is_compiling() and value.is_neg():
        return "is lazily negated"
    return None


def _has_own_strides(value: torch.Tensor) -> bool:
    """Whether also dimensions of size 1 have the strides that follow from the shape: a kernel may use them as sizes."""
    step = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if stride != step:
            return False
        step *= max(size, 1)
    return True


def hooks(module: nn.Module) -> tuple[Mapping[int, Any], ...]:
    """Returns what torch calls around a module's ``forward``. Where a part has such hooks, no kernel runs."""
    return (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )


def same_value(listed: Any, actual: Any) -> bool:
    """Returns whether a plain value equals the listed one in value, sign and type; functions and classes by name."""
    if actual is MISSING:
        return False
    if callable(actual):
        return bool(listed == _named(actual))
    if type(actual) is not type(listed) or not isinstance(actual, SCALARS):
        return False
    if actual == listed:
        return actual != 0 or math.copysign(1.0, actual) == math.copysign(1.0, listed)
    return bool(actual != actual and listed != listed)


def split_item(owner: Any, part: str) -> tuple[str, int | None]:
    """``stride[1]`` of a dotted name as ``("stride", 1)``; a part that ``owner`` has under that very name as ``(part, None)``."""
    name, bracket, index = part.partition("[")
    if not bracket or not index[:-1].isdigit() or hasattr(owner, part):
        return part, None
    return name, int(index[:-1])


def _structure(domain: Domain, module: nn.Module) -> str | None:
    listed = [path.removesuffix(_CLASS) for path in domain.attributes if path.endswith(_CLASS)]
    known = {id(_lookup(module, path)) for path in listed}
    for path, child in module.named_modules(remove_duplicate=False):
        where = f"submodule `{path}`" if path else "the module"
        if child.training != domain.training:
            return (
                f"{where} is in {_mode(child.training)} mode, the kernel is for {_mode(domain.training)} mode"
            )
        if path and id(child) not in known:
            return f"{where} is no part of the verified domain"
        if isinstance(child, ORDERED) and _parts(child) != [
            part for owner, _, part in (each.rpartition(".") for each in listed) if owner == path
        ]:
            return f"{where} does not have the parts that the kernel was verified with, or not in their order"
        if path and replaced(child, "forward"):
            return f"{where} has a forward of its own"
        if path and any(hooks(child)):
            return f"{where} has hooks"
    for path, _ in (*module.named_parameters(), *module.named_buffers()):
        if path not in domain.attributes:
            return f"`{path}` is not part of the verified domain"
    return None


def _parts(module: nn.Module) -> list[str]:
    return [name for name, part in module._modules.items() if part is not None]


def _attributes(
    domain: Domain, module: nn.Module, sizes: dict[str, int], devices: dict[torch.device, str]
) -> str | None:
    for path, listed in domain.attributes.items():
        if is_pin(path):
            continue
        actual = _lookup(module, path)
        if isinstance(listed, TensorSpec):
            if problem := _tensor(listed, actual, domain.dims, sizes):
                return f"`{path}` {problem}"
            devices.setdefault(actual.device, f"`{path}`")
        elif not same_value(listed, actual):
            return f"`{path}` is {_shown(actual)}, the kernel is for {_shown(listed)}"
    return None


def _pins(domain: Domain, module: nn.Module) -> str | None:
    listed = {name: value for name, value in domain.attributes.items() if is_pin(name)}
    if torch.compiler.is_dynamo_compiling():
        if listed.keys() - {"value:__class__"}:
            return "torch.compile cannot compare all values that the original reads"
        # The texts are not traced; the module's class is guarded.
        return (
            None
            if listed.get("value:__class__", _named(type(module))) == _named(type(module))
            else "another class"
        )
    tied = {name: value for name, value in listed.items() if name.startswith("same:")}
    if differing := tied.items() ^ ties(module).items():
        name = min(differing)[0].partition(":")[2]
        return (
            f"`{name}` and another part or weight are one object here or in the verified module, not in both"
        )
    for name in listed.keys() - tied.keys():
        path = name.partition(":")[2]
        try:
            actual = pinned(module, name)
        except Unpinnable as error:
            return f"`{path}` {error}"
        if name.startswith("order:") and actual != listed[name]:
            return (
                f"the parts of `{path or 'self'}` are in the order {actual}, the kernel is for {listed[name]}"
            )
        if actual != listed[name]:
            return f"`{path}` is {actual}, the kernel is for {listed[name]}"
    return None


def _arguments(
    domain: Domain, bound: inspect.BoundArguments, sizes: dict[str, int], devices: dict[torch.device, str]
) -> str | None:
    parameters = bound.signature.parameters
    for name, parameter in parameters.items():
        actual = bound.arguments.get(name, parameter.default)
        further = parameter.kind is parameter.VAR_KEYWORD  # which have their own names
        expected = [
            leaf
            for leaf in domain.inputs
            if (parameter_of(leaf) not in parameters if further else parameter_of(leaf) == name)
        ]
        if not expected:
            if name in bound.arguments and not is_default(parameter, actual):
                which = f"{', '.join(actual)}` in `**{name}" if further else name
                return f"argument `{which}` was not passed when the kernel was verified"
            continue
        given = (actual or {}) if further else {name: actual}
        found = [leaf for each, value in given.items() for leaf in leaves(each, value)]
        names = [leaf for leaf, _ in found]
        if sorted(names, key=parameter_of) != sorted(expected, key=parameter_of):  # keywords have no order
            parts = sum(not leaf.endswith(KIND) for leaf in expected)
            return f"argument `{name}` does not have the {parts} parts that the kernel was verified with, or not in their order"
        for leaf, value in found:
            if problem := _argument(domain, leaf, value, sizes, devices):
                return problem
    return None


def _argument(
    domain: Domain, leaf: str, actual: Any, sizes: dict[str, int], devices: dict[torch.device, str]
) -> str | None:
    listed = domain.inputs[leaf]
    if isinstance(listed, TensorSpec):
        if problem := _tensor(listed, actual, domain.dims, sizes):
            return f"argument `{leaf}` {problem}"
        devices.setdefault(actual.device, f"argument `{leaf}`")
    elif not same_value(listed, actual):
        return f"argument `{leaf}` is {_shown(actual)}, the kernel is for {_shown(listed)}"
    return None


def is_default(parameter: inspect.Parameter, actual: Any) -> bool:
    """Returns whether an argument has the same effect as leaving it out."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return not actual
    return actual is parameter.default or same_value(parameter.default, actual)


def _tensor(
    spec: TensorSpec, actual: Any, ranges: Mapping[str, tuple[int, int]], sizes: dict[str, int]
) -> str | None:
    if problem := tensor_problem(actual):
        return problem
    if (dtype := str(actual.dtype).removeprefix("torch.")) != spec.dtype:
        return f"is {dtype}, the kernel is for {spec.dtype}"
    shape = tuple(actual.shape)
    if len(shape) != len(spec.shape):
        return f"has shape {_sized(shape)}, the kernel is for {_shape(spec)}"
    for size, wanted in zip(shape, spec.shape, strict=True):
        if isinstance(wanted, int):
            if size != wanted:
                return f"has shape {_sized(shape)}, the kernel is for {_shape(spec)}"
            continue
        low, high = ranges.get(wanted, (0, -1))
        if not low <= size <= high:
            return f"has {wanted} = {_sized(size)}, the kernel is for {_sized(low)} to {_sized(high)}"
        if sizes.setdefault(wanted, size) != size:
            return f"has {wanted} = {_sized(size)} where another tensor has {_sized(sizes[wanted])}"
    return None


def _devices(devices: Mapping[torch.device, str], device_type: str) -> str | None:
    for device, where in devices.items():
        if device.type != device_type:
            return f"{where} is on {device}, the kernel runs on {device_type}"
    if len(devices) > 1:
        return "tensors are on several devices: " + ", ".join(f"{w} on {d}" for d, w in devices.items())
    return None if devices else "the call has no tensor that determines the device"


def _gradients(domain: Domain, module: nn.Module, bound: inspect.BoundArguments) -> str | None:
    if domain.grad or not torch.is_grad_enabled():
        return None
    tensors = _tensors(domain, module, bound)
    wanting = next((name for name, tensor in tensors if tensor.requires_grad), None)
    return wanting and (
        f"gradients are enabled and `{wanting}` requires them, which the kernel does not compute "
        "(call it under torch.no_grad())"
    )


def _misaligned(domain: Domain, module: nn.Module, bound: inspect.BoundArguments) -> str | None:
    if not domain.aligned:
        return None
    if torch.compiler.is_compiling():
        return "torch.compile cannot tell where tensors start"
    off = next((name for name, tensor in _tensors(domain, module, bound) if not aligned(tensor)), None)
    return off and f"`{off}` does not start at a multiple of {ALIGNMENT} bytes, which the kernel needs"


def aligned(*tensors: torch.Tensor) -> bool:
    """Whether tensors start at multiples of ``ALIGNMENT`` bytes."""
    return not any(tensor.data_ptr() % ALIGNMENT for tensor in tensors)


def _tensors(
    domain: Domain, module: nn.Module, bound: inspect.BoundArguments
) -> list[tuple[str, torch.Tensor]]:
    given = [leaf for name, value in bound.arguments.items() for leaf in leaves(name, value)]
    paths = [path for path in domain.attributes if not is_pin(path)]
    every = [*given, *((path, _lookup(module, path)) for path in paths)]
    return [(name, value) for name, value in every if isinstance(value, torch.Tensor)]


def _lookup(module: nn.Module, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        name, index = split_item(found, part)
        found = getattr(found, name, MISSING)
        if index is not None:
            found = found[index] if isinstance(found, tuple | list) and index < len(found) else MISSING
    return found


def _named(value: Any) -> str:
    # Functions of torch written in C have no module; discovery counts them as torch's.
    return f"{getattr(value, '__module__', None) or 'torch'}.{getattr(value, '__qualname__', '')}"


def _mode(training: bool) -> str:
    return "train" if training else "eval"


def _shape(spec: TensorSpec) -> str:
    return "(" + ", ".join(map(_sized, spec.shape)) + ("," if len(spec.shape) == 1 else "") + ")"


def _sized(size: int | str | tuple[int, ...]) -> str:
    # While torch.compile traces, nobody reads the reasons, and numbers may be symbols without a text.
    return "" if torch.compiler.is_compiling() else str(size)


def _shown(value: Any) -> str:
    if torch.compiler.is_compiling():  # not all of this can be traced
        return ""
    if value is MISSING or value is inspect.Parameter.empty:
        return "missing"
    if isinstance(value, torch.Tensor):
        return "a tensor"
    if callable(value):
        return _named(value)
    return repr(value) if isinstance(value, SCALARS) else f"a {type(value).__qualname__}"
