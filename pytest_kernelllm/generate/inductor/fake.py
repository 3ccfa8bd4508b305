"""Makes a case's module and inputs from tensors without data, so that tracing takes no memory and no time to draw."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.records import Case, TensorSpec
from kernelllm_judge.target.calls import Call
from kernelllm_judge.target.errors import TargetError
from kernelllm_runtime.leaves import parameter_of
from kernelllm_runtime.parameters import keywords

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget

_LARGE = 1 << 22
"""A module with more elements than this in its parameters and buffers is built without data."""


def fake_call(live: LiveTarget, case: Case, sizes: Mapping[str, int]) -> Call:
    """Returns the arguments of ``forward`` in a case, with tensors on the CPU that have no data.

    The user's callable is not called: the case says what it returns.
    """
    with FakeTensorMode():
        values = nested({name: _value(spec, sizes) for name, spec in case.domain.inputs.items()})
    ordered = {name: values.pop(name) for name in live.signature.parameters if name in values}
    if values:
        ordered[keywords(live.signature)] = values
    bound = inspect.BoundArguments(live.signature, ordered)
    return Call(bound.args, bound.kwargs)


def traceable_module(live: LiveTarget, case: Case) -> nn.Module:
    """Builds a module on the CPU for tracing; a large one without data, if its constructor reads none."""
    return _naming_keywords(_built(live, case), live, case)


def _naming_keywords(module: nn.Module, live: LiveTarget, case: Case) -> nn.Module:
    """Gives what goes into ``**kwargs`` parameters of its own: ``torch.export`` lets no sizes of it vary otherwise."""
    parameters = live.signature.parameters
    names = dict.fromkeys(
        name for leaf in case.domain.inputs if (name := parameter_of(leaf)) not in parameters
    )
    if not names:
        return module
    forward: Any = module.forward

    @functools.wraps(forward)
    def named(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    kept = [each for each in parameters.values() if each.kind is not each.VAR_KEYWORD]
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    named.__signature__ = inspect.Signature([*kept, *added])  # type: ignore[attr-defined]  # which functions may have
    module.forward = named
    return module


def _built(live: LiveTarget, case: Case) -> nn.Module:
    specs = (spec for spec in case.domain.attributes.values() if isinstance(spec, TensorSpec))
    if sum(math.prod(int(n) for n in spec.shape) for spec in specs) > _LARGE:
        try:
            with FakeTensorMode():
                return live.build(case)
        except TargetError:  # such as a constructor that turns a tensor into a number
            pass
    return live.build(case)


def _value(spec: Any, sizes: Mapping[str, int]) -> Any:
    if not isinstance(spec, TensorSpec):
        return spec
    shape = [sizes[size] if isinstance(size, str) else size for size in spec.shape]
    return torch.empty(shape, dtype=getattr(torch, spec.dtype))
