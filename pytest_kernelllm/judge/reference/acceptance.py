"""Tries what the original accepts: changed inputs, weights and attributes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from pytest_kernelllm.core.stages import RUNNING, InStage, unwatched
from pytest_kernelllm.judge.reference import calls
from pytest_kernelllm.judge.shared.watch import OperationWatch

CHECKED_ON_GPU = frozenset(
    f"aten::{name}" for name in ("binary_cross_entropy", "bernoulli", "multinomial", "_assert_async")
)
"""Operations that end the whole process's use of the GPU where a floating input is out of their range."""

TRIED_ELEMENTS = 1 << 22
"""Most elements of an input that is tried on the CPU first."""


class Unasked(Exception):
    """A probe has nothing to ask: the original accepts no such inputs, weights or attributes.

    The text says what was tried; it is empty where nothing was.
    """


@dataclass(frozen=True)
class Trial:
    """The original with inputs and weights that it accepts, to try others."""

    module: nn.Module
    exact: Callable[[nn.Module], nn.Module]
    """Returns a module's copy in float64."""
    arguments: dict[str, Any]
    on_cpu: Callable[[], nn.Module] | None
    """Builds the original on the CPU, where invalid inputs raise errors and harm nothing; None: it is there."""
    in_stage: InStage = unwatched
    """Gives the context for each run of the original."""
    place: calls.Change = torch.clone
    """Returns a copy of an argument on the device of ``module``."""
    in_float64: Callable[[nn.Module, dict[str, Any]], list[Any]] = calls.run_in_float64
    """Runs such a copy, see ``calls.run_in_float64``."""

    @cached_property
    def usual(self) -> tuple[list[Any], frozenset[str]]:
        """The leaves of the outputs for the unchanged inputs, and the names of torch's operations."""
        with OperationWatch(guarded=False) as watch:
            leaves = calls.run_original(self.module, self.arguments, self.place)[1]
        return leaves, frozenset(watch.elements)

    def accepts_inputs(self, arguments: dict[str, Any], names: Collection[str], nonfinite: bool) -> bool:
        """Whether the original accepts other arguments.

        Args:
            arguments: by parameter name.
            names: those that may lie outside their usual range.
            nonfinite: whether outputs may be NaN or infinite where they are usually finite.
        """
        changed = [arguments[name] for name in names]
        whole = not all(value.is_floating_point() for value in changed)
        if self.on_cpu is not None and (whole or self.usual[1] & CHECKED_ON_GPU):
            if max(value.numel() for value in changed) > TRIED_ELEMENTS:
                return False
            moved = {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
            try:
                with self.in_stage(RUNNING):
                    calls.call_original(self.on_cpu(), moved)
            except Exception:  # the user's code may raise anything
                return False
        return self.accepts(self.module, arguments, nonfinite)

    def accepts(self, module: nn.Module, arguments: dict[str, Any], nonfinite: bool) -> bool:
        """Whether ``module`` gives outputs of the usual form, as finite and as exact as usual.

        Raises:
            torch.cuda.OutOfMemoryError: there is too little memory to find out.
        """
        usual = self.usual[0]
        try:
            with self.in_stage(RUNNING):
                leaves = calls.run_original(module, arguments, self.place)[1]
            if not _same_form(leaves, usual):
                return False
            if nonfinite:
                return True
            if not _as_finite(leaves, usual):
                return False
            return _agree(leaves, self.in_float64(self.exact(module), arguments))
        except torch.cuda.OutOfMemoryError:
            raise  # with more memory it might accept them
        except Exception:  # the user's code may raise anything
            return False


def _same_form(leaves: Sequence[Any], usual: Sequence[Any]) -> bool:
    return [(leaf.shape, leaf.dtype) for leaf in leaves] == [(leaf.shape, leaf.dtype) for leaf in usual]


def _as_finite(leaves: Sequence[torch.Tensor], usual: Sequence[torch.Tensor]) -> bool:
    return not any(
        bool((before.isfinite() & ~after.isfinite()).any())
        for after, before in zip(leaves, usual, strict=True)
        if after.is_floating_point()
    )


def _agree(leaves: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> bool:
    """Whether outputs have about half of their digits in common with those in float64."""
    for leaf, truth in zip(leaves, exact, strict=True):
        if not leaf.is_floating_point() or not leaf.numel():
            continue
        wide = torch.where(leaf.isfinite(), truth.double(), 0.0)
        error = (torch.where(leaf.isfinite(), leaf.double(), 0.0) - wide).abs()
        size = wide.abs()
        scale = size.amax() * (size / size.amax().clamp_min(1e-300)).square().mean().sqrt()
        if not bool((error <= torch.finfo(leaf.dtype).eps ** 0.5 * (size + scale)).all()):
            return False
    return True
