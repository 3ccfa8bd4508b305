"""Writes ``get_inputs`` and ``get_init_inputs`` from the values with which a case is built and called."""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.records import Case, TensorSpec
from kernelllm_judge.target import build
from kernelllm_judge.target.calls import Call, seeded
from kernelllm_judge.target.errors import TargetError
from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.models.prompt.files import MISSING, PromptError, attribute
from pytest_kernelllm.models.prompt.values import Unwritable, write

_MOST_ELEMENTS = 1 << 22
"""Inputs with more elements are made without data."""

_SMALL = 16
"""Integer tensors with at most this many elements are written as they are: they may be sizes or offsets."""

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def order(signature: inspect.Signature, passed: Mapping[str, Any], what: str) -> list[str]:
    """Lists the parameters that must be passed by position so that all in ``passed`` get their value.

    Where ``shorten.positional`` moves keyword-only ones, those with a default come last.
    """
    if further := sorted(set(passed) - set(signature.parameters)):
        raise PromptError(f"{what} takes {further[0]} by keyword; give it a parameter of its own")
    found: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            found.append(parameter)
        elif name in passed:
            raise PromptError(f"{what} takes values by {parameter}; give each a parameter of its own")
    if any(parameter.kind == parameter.KEYWORD_ONLY for parameter in found):
        found.sort(key=lambda parameter: parameter.default is not parameter.empty)
    names = [parameter.name for parameter in found]
    while names and names[-1] not in passed:
        names.pop()
    return names


def constructor_values(live: LiveTarget) -> dict[str, Any]:
    """Returns the constructor's arguments by name, in the order in which they are passed by position."""
    init = live.way(live.cases[0]).init
    made = build.init_arguments(init, f"{live.target.path}: {live.target.name}")
    call = made if isinstance(made, Call) else _observed_call(live)
    signature = inspect.signature(live.cls.__init__)
    signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    passed = signature.bind(*call.args, **call.kwargs).arguments
    more = next((p.name for p in signature.parameters.values() if p.kind == p.VAR_POSITIONAL), "")
    rest = {f"{more}[{number}]": value for number, value in enumerate(passed.pop(more, ()))}
    names = order(signature, passed, "its constructor")
    return {name: passed.get(name, signature.parameters[name].default) for name in names} | rest


def _observed_call(live: LiveTarget) -> Call:
    """Returns the arguments with which an ``init`` that returns a ready module called the class."""
    calls: dict[int, Call] = {}
    original = live.cls.__init__

    @functools.wraps(original)
    def recording(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        calls[id(self)] = copy.deepcopy(Call(args, kwargs))
        original(self, *args, **kwargs)

    with patch.object(live.cls, "__init__", recording), seeded(0, "cpu"):
        module = live.way(live.cases[0]).init()
    if id(module) not in calls:
        raise PromptError(
            "its init callable returns a module that it did not make; return the constructor's arguments"
        )
    return calls[id(module)]


def init_inputs(
    values: Mapping[str, Any], reads: Callable[[Iterable[str]], set[str]], refer: Callable[[Any], str]
) -> str:
    """Returns the list that ``get_init_inputs`` returns; ``...`` stands for what cannot be written."""

    def written(name: str, value: Any, depth: int = 0) -> str:
        try:
            return write(value, refer)
        except Unwritable:
            if isinstance(value, nn.Module | torch.Tensor) or depth > 2 or not hasattr(value, "__dict__"):
                return "..."
        found = {each: attribute(value, each) for each in sorted(reads([name]))}
        held = {n: each for n, each in found.items() if each is not MISSING and not inspect.ismethod(each)}
        shown = {n: written(n, each, depth + 1) for n, each in held.items()}
        return f"{refer(SimpleNamespace)}({', '.join(f'{n}={text}' for n, text in shown.items())})"

    return f"[{', '.join(written(name, value) for name, value in values.items())}]"


def words_of(values: Iterable[Any]) -> set[str]:
    """Returns the strings in constructor arguments, and in the attributes of those that are objects."""
    held = [part for value in values for part in (value, *getattr(value, "__dict__", {}).values())]
    return {part for part in held if isinstance(part, str)}


def inputs(live: LiveTarget, case: Case, refer: Callable[[Any], str]) -> list[str]:
    """Returns an expression for each positional argument of ``forward``, which makes a value like the case's."""
    small = small_sizes(case)
    try:
        call = live.inputs(case, 0, small, "meta" if small is None else "cpu")
    except TargetError:  # not every callable works without data
        call = live.inputs(case, 0)
    sample = nested(live.bind(call))
    names = order(live.signature, sample, "forward")
    shown = {n: sample.get(n, live.signature.parameters[n].default) for n in names}
    return [_made(case, name, value, refer) for name, value in shown.items()]


def small_sizes(case: Case) -> dict[str, int] | None:
    """Returns small sizes of a case's named dimensions, or None if its inputs are large even then."""
    sizes = {name: max(low, min(high, 4)) for name, (low, high) in case.domain.dims.items()}
    for value in case.domain.inputs.values():
        if isinstance(value, TensorSpec):
            shape = [sizes[entry] if isinstance(entry, str) else entry for entry in value.shape]
            if math.prod(shape) > _MOST_ELEMENTS:
                return None
    return sizes


def _made(case: Case, name: str, value: Any, refer: Callable[[Any], str]) -> str:
    if isinstance(value, tuple | list):
        opened, closed = "()" if isinstance(value, tuple) else "[]"
        parts = (_made(case, f"{name}[{i}]", each, refer) + ", " for i, each in enumerate(value))
        return f"{opened}{''.join(parts)}{closed}"
    if isinstance(value, torch.Tensor):
        spec = getattr(case.domain.inputs.get(name), "shape", tuple(value.shape))
        refer(torch.Tensor)  # imports torch
        return _tensor(value, tuple(case.sizes[d] if isinstance(d, str) else d for d in spec))
    try:
        return write(value, refer)
    except Unwritable:
        return "..."


def _tensor(value: torch.Tensor, shape: tuple[int, ...]) -> str:
    """Writes an expression that makes a tensor of a shape with values like those of a sample."""
    sizes = ", ".join(map(str, shape)) or "()"
    ordinary = value.dtype in (torch.bool, *_INTEGERS, *_FLOATS)
    if value.is_meta or not ordinary or not value.numel():
        kind = "randn" if value.is_complex() or value.dtype in _FLOATS else "zeros"
        dtype = "" if value.dtype is torch.float32 else f", dtype={value.dtype}"
        return f"torch.{kind}({sizes}{dtype})"
    if bool((value == value.flatten()[0]).all()):
        filled = value.flatten()[0].item()
        dtype = "" if value.dtype == torch.tensor(filled).dtype else f", dtype={value.dtype}"
        return f"torch.full({shape}, {write(filled, str)}{dtype})"
    if value.dtype == torch.bool:
        return f"torch.rand({sizes}) < 0.5"
    if not value.is_floating_point():
        dtype = "" if value.dtype == torch.int64 else f", dtype={value.dtype}"
        if value.numel() <= _SMALL and tuple(value.shape) == shape:
            return f"torch.tensor({value.tolist()}{dtype})"
        return f"torch.randint({int(value.min())}, {int(value.max()) + 1}, {shape}{dtype})"
    made = f"torch.{'rand' if value.min() >= 0 and value.max() <= 1 else 'randn'}({sizes})"
    if bool((value.abs() == 1).all()):
        made += ".sign()"
    return made if value.dtype == torch.float32 else f"{made}.to({value.dtype})"
