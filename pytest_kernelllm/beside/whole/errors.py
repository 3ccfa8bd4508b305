"""Compares outputs of a model with those of its copy in float64."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves, tree_map

from kernelllm_judge.target.errors import in_one_line
from pytest_kernelllm.beside.whole.stage import Call, Stage
from pytest_kernelllm.core.words import counted

ALLOWED = 1.5
"""Times the error of ``torch.compile`` that another way may have."""

DEPTH = 4
"""How deep in the objects among the arguments tensors are looked for: a cache holds layers, which hold tensors."""


@dataclass(frozen=True)
class Reference:
    """What outputs are compared with."""

    outputs: tuple[torch.Tensor | None, ...]
    """None where nothing is known: it differs from call to call of the example."""
    exact: bool
    """Whether they are those of float64; else those of the model as it is."""
    why: str = ""
    """Why they are not."""

    def error(self, outputs: Sequence[torch.Tensor]) -> float | None:
        """Returns the largest relative error of an output, in the Frobenius norm; infinite where their number differs.

        None if no output can be compared.
        """
        if all(each is None for each in self.outputs):
            return None
        if len(outputs) != len(self.outputs):
            return float("inf")
        return max(_relative(a, b) for a, b in zip(outputs, self.outputs, strict=True) if b is not None)

    @property
    def note(self) -> str:
        """What errors do not say, as a sentence; empty if they say all."""
        if not self.outputs:
            return "The model's last call returns no floating tensors, so nothing is known of errors."
        changing = sum(each is None for each in self.outputs)
        if not changing:
            return ""
        return (
            f"Errors leave out {changing} of {counted(len(self.outputs), 'output')}, which differ from call to call of the example "
            "in the model as it is: let each call begin in the same state, and seed what is random."
        )


def reference(stage: Stage) -> Reference:
    """Returns what the model computes in float64; where its copy does not run, what it computes as it is."""
    own, again = floating(stage.run(None)), floating(stage.run(None))
    alike = len(own) == len(again)
    steady = [
        alike and _relative(b, a) <= torch.finfo(a.dtype).eps ** 0.5 for a, b in zip(own, again, strict=False)
    ]
    compared = _computed(stage, own)
    known = zip(compared.outputs, steady, strict=False)
    return replace(compared, outputs=tuple(each if same else None for each, same in known))


def _computed(stage: Stage, own: tuple[torch.Tensor, ...]) -> Reference:
    try:
        doubled = copy.deepcopy(stage.subject.model).double()
        doubled._compiled_call_impl = None
        with torch.compiler.set_stance("force_eager"):  # also of parts that are compiled already
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
        if isinstance(each, torch.Tensor) and each.is_complex():
            return each.to(torch.complex128)
        if isinstance(each, torch.Tensor):
            return each.double() if each.is_floating_point() else each.clone()
        if depth == 0 or callable(each) or not hasattr(each, "__dict__"):
            return each
        copied = copy.copy(each)
        vars(copied).update({name: _doubled(part, depth - 1) for name, part in vars(each).items()})
        return copied

    return tree_map(leaf, value)


def floating(returned: Any) -> tuple[torch.Tensor, ...]:
    """Returns copies of all floating tensors in what a model returned: the memory of CUDA graphs is used again.

    Complex ones are pairs of real ones, and tensors of many parts, such as nested ones, are their parts.
    """
    leaves: list[torch.Tensor] = []
    for leaf in tree_leaves(returned):
        if is_traceable_wrapper_subclass(leaf):
            leaves += floating([getattr(leaf, name) for name in leaf.__tensor_flatten__()[0]])
        elif isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            dense = leaf.detach() if leaf.layout is torch.strided else leaf.detach().to_dense()
            real = torch.view_as_real(dense.resolve_conj()) if leaf.is_complex() else dense
            leaves.append(real.clone())
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            leaves += floating([getattr(leaf, each.name) for each in fields(leaf)])
    return tuple(leaves)


def _relative(outputs: torch.Tensor, exact: torch.Tensor) -> float:
    if outputs.shape != exact.shape:
        return float("inf")
    outputs, exact = outputs.double(), exact.double()
    known = exact.isfinite()
    if not bool((outputs.isfinite() == known).all()):
        return float("inf")
    zero = torch.zeros((), dtype=torch.float64, device=exact.device)
    difference = torch.where(known, outputs - exact, zero).norm()
    size = torch.where(known, exact, zero).norm()
    return float(difference / size) if size else float(difference)
