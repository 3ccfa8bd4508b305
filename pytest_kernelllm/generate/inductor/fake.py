"""Makes a case's module and inputs from tensors without data, so that tracing takes no memory and no time to draw."""

from __future__ import annotations

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
    ordered = {name: values[name] for name in live.signature.parameters if name in values}
    bound = inspect.BoundArguments(live.signature, ordered)
    return Call(bound.args, bound.kwargs)


def traceable_module(live: LiveTarget, case: Case) -> nn.Module:
    """Builds a module on the CPU for tracing; a large one without data, if its constructor reads none."""
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
