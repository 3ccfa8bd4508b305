"""Finds the sizes at which kernels with 32-bit offsets still reach every element of a target's inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.offsets import WITHIN_32_BITS
from kernelllm_judge.core.targets import Case, TensorSpec
from kernelllm_judge.target.calls import seeded
from kernelllm_judge.target.cases import Ranges
from kernelllm_judge.target.work import empty_inputs
from kernelllm_runtime.returned import fields_of


def dims_within_32_bits(case: Case, output_elements: Callable[[dict[str, int]], int | None]) -> Ranges | None:
    """Returns smaller ranges of a case's dimensions, or None if its own are small enough.

    The largest range is halved first, and those that exceed the case's own size before others. A case that is too large
    even at its smallest sizes keeps these: they are judged as they are.

    Args:
        case: the case.
        output_elements: returns the elements of the largest output at given sizes; None where that is unknown, which
            counts as the square of the largest input's.
    """

    if all(low == high for low, high in case.domain.dims.values()):
        return None  # there is nothing to make smaller, so the original is not run for it

    def largest(dims: Ranges) -> int:
        sizes = {name: high for name, (_, high) in dims.items()}
        given = _input_elements(case, sizes)
        made = output_elements(sizes)
        return max(given, given * given if made is None else made)

    dims = dict(case.domain.dims)
    while largest(dims) > WITHIN_32_BITS:
        above = [name for name, (low, high) in dims.items() if high > max(low, case.sizes[name])]
        rest = [name for name, (low, high) in dims.items() if high > low]
        if not rest:
            break
        name = max(above or rest, key=lambda each: dims[each][1])
        low, high = dims[name]
        dims[name] = (low, max(high // 2, case.sizes[name] if above else low))
    return None if dims == case.domain.dims else dims


def _input_elements(case: Case, sizes: Mapping[str, int]) -> int:
    specs = [spec for spec in case.domain.inputs.values() if isinstance(spec, TensorSpec)]
    return max(
        (math.prod(sizes[d] if isinstance(d, str) else d for d in spec.shape) for spec in specs), default=1
    )


def without_data(module: nn.Module, case: Case, sizes: dict[str, int]) -> Any:
    """Returns what the original returns in a run without data; None where that fails, as much does that runs on data."""
    try:
        with seeded(0, "meta"), torch.no_grad():
            return module(**nested(empty_inputs(case, sizes)))
    except Exception:
        return None


def output_elements(module: nn.Module, case: Case, sizes: dict[str, int]) -> int | None:
    """Returns the elements of the original's largest output, from a run without data; None where that fails."""
    found = without_data(module, case, sizes)
    if found is None:
        return None
    fields = fields_of(found)
    outputs = tree_leaves(found if fields is None else fields)
    if not all(isinstance(each, torch.Tensor | int | float | None) for each in outputs):
        return None  # an object that may hold tensors
    return max((each.numel() for each in outputs if isinstance(each, torch.Tensor)), default=0)
