"""Runs a target's original without data, to learn how much work a call is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.dispatch_mode import DispatchMode
from kernelllm_judge.core.targets import Case, TensorSpec
from kernelllm_judge.target.calls import seeded
from kernelllm_judge.target.cases import Described, Sizes

_INPUT = 1 << 22
"""Most elements of an input of a trial…"""
_OUTPUTS = 1 << 27
"""…and of its operations' outputs together: two thin matrices have a product of gigabytes."""


def trial_sizes(module: nn.Module, case: Case) -> Sizes | None:
    """Returns small sizes at which the original can be tried on a CPU; None where even they make much work.

    Args:
        module: a built module, which stays unchanged.
        case: the case.
    """
    sizes = {name: max(low, min(high, 4)) for name, (low, high) in case.domain.dims.items()}
    return sizes if is_little_work(module, empty_inputs(case, sizes)) else None


def is_little_work(module: nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether a call can be tried on a CPU.

    Args:
        module: a built module, which stays unchanged.
        inputs: tensors without data, by leaf.
    """
    if any(isinstance(value, torch.Tensor) and value.numel() > _INPUT for value in inputs.values()):
        return False
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    given, every = (
        max((t.numel() for t in tensors.values() if isinstance(t, torch.Tensor)), default=1)
        for tensors in (inputs, {**inputs, **held})
    )
    if given * every <= _OUTPUTS:
        # No product with an input is larger. A run without data might leave such tensors in the user's caches.
        return True
    meta = {name: tensor.to("meta") for name, tensor in held.items()}
    try:
        with seeded(0, "meta"), torch.no_grad(), _Bounded():
            functional_call(module, meta, (), nested(inputs))
    except _TooMuch:
        return False
    except (Exception, SystemExit):  # much of what runs on data does not run without
        pass
    return True


def empty_inputs(case: Case, sizes: Sizes) -> dict[str, Any]:
    """Returns the case's inputs as tensors without data."""
    return empty_tensors(case.domain.inputs, sizes)


def empty_tensors(inputs: Described, sizes: Sizes | None = None) -> dict[str, Any]:
    """Returns described inputs as tensors without data; ``sizes`` holds those of named dimensions."""
    return {
        name: torch.empty(
            [(sizes or {})[d] if isinstance(d, str) else d for d in value.shape],
            dtype=getattr(torch, value.dtype),
            device="meta",
        )
        if isinstance(value, TensorSpec)
        else value
        for name, value in inputs.items()
    }


class _TooMuch(BaseException):
    """Ends a run that would be too long; what catches errors in the user's code does not catch it."""


class _Bounded(DispatchMode):
    """Counts the elements of operations' outputs, and ends a run with too many."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and counts its work."""
        made = func(*args, **(kwargs or {}))
        self.elements += sum(leaf.numel() for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor))
        if self.elements > _OUTPUTS:
            raise _TooMuch
        return made
