"""Compares outputs of a model with those of its copy in float64."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from kernelllm_judge.target.errors import in_one_line
from pytest_kernelllm.beside.whole.stage import Call, Stage

ALLOWED = 1.5
"""Times the error of ``torch.compile`` that another way may have."""

DEPTH = 4
"""How deep in the objects among the arguments tensors are looked for: a cache holds layers, which hold tensors."""


@dataclass(frozen=True)
class Reference:
    """What outputs are compared with."""

    outputs: tuple[torch.Tensor, ...]
    exact: bool
    """Whether they are those of float64; else those of the model as it is."""
    why: str = ""
    """Why they are not."""

    def error(self, outputs: Sequence[torch.Tensor]) -> float:
        """Returns the largest relative error of an output, in the Frobenius norm; infinite where their number differs."""
        if len(outputs) != len(self.outputs):
            return float("inf")
        return max((_relative(a, b) for a, b in zip(outputs, self.outputs, strict=True)), default=0.0)


def reference(stage: Stage) -> Reference:
    """Returns what the model computes in float64; where its copy does not run, what it computes as it is."""
    own = floating(stage.run(None))
    try:
        doubled = copy.deepcopy(stage.subject.model).double()
        doubled._compiled_call_impl = None
        outputs = floating(stage.run(_in_float64(doubled)))
        if len(outputs) != len(own):
            raise ValueError("its copy in float64 returns something else")
    except Exception as error:  # a model may do anything with a dtype, and the GPU may be full
        return Reference(own, exact=False, why=in_one_line(error))
    return Reference(outputs, exact=True)


def _in_float64(model: nn.Module) -> Call:
    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*_doubled(args), **_doubled(kwargs))

    return call


def _doubled(value: Any, depth: int = DEPTH) -> Any:
    """Returns a copy of arguments with floating tensors in float64, also inside objects such as caches."""

    def leaf(each: Any) -> Any:
        if isinstance(each, torch.Tensor):
            return each.double() if each.is_floating_point() else each.clone()
        if depth == 0 or callable(each) or not hasattr(each, "__dict__"):
            return each
        copied = copy.copy(each)
        vars(copied).update({name: _doubled(part, depth - 1) for name, part in vars(each).items()})
        return copied

    return tree_map(leaf, value)


def floating(returned: Any) -> tuple[torch.Tensor, ...]:
    """Returns copies of all floating tensors in what a model returned: the memory of CUDA graphs is used again."""
    leaves = []
    for leaf in tree_leaves(returned):
        if isinstance(leaf, torch.Tensor):
            leaves += [leaf.detach().clone()] if leaf.is_floating_point() else []
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            leaves += floating([getattr(leaf, each.name) for each in fields(leaf)])
    return tuple(leaves)


def _relative(outputs: torch.Tensor, exact: torch.Tensor) -> float:
    if outputs.shape != exact.shape:
        return float("inf")
    exact = exact.double()
    known = exact.isfinite()
    if not bool((outputs.isfinite() == known).all()):
        return float("inf")
    zero = torch.zeros((), dtype=torch.float64, device=exact.device)
    difference = torch.where(known, outputs.double() - exact, zero).norm()
    size = torch.where(known, exact, zero).norm()
    return float(difference / size) if size else float(difference)
