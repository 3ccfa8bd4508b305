"""Tries what the original accepts: changed inputs, weights and attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from kernelllm_judge.core.eight_bits import computable
from kernelllm_judge.core.stages import RUNNING, InStage, unwatched
from kernelllm_judge.shared.leaves import flatten
from kernelllm_judge.shared.watch import OperationWatch
from kernelllm_judge.truth import calls
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.rows import CHUNK
from kernelllm_judge.truth.stress import MASKED

CHECKED_ON_GPU = frozenset(
    f"aten::{name}" for name in ("binary_cross_entropy", "bernoulli", "multinomial", "_assert_async")
)
"""Operations that end the whole process's use of the GPU where a floating input is out of their range."""

USUAL = 4.0
"""How many times its usual error the original may make at what it accepts…"""

ROUGH = 16.0
"""…and the largest usual error that counts so often…"""

ALIKE = 1.25
"""…of which any may be made as often as this."""

ROUGHEST = 128.0
"""Largest error where it need not be usual: 4 % for float32, with which values are no noise yet."""

TRIED_ELEMENTS = 1 << 22
"""Most elements of an input that is tried on the CPU first."""


MOST_MASKED = 1e6
"""Largest output of an original that masks its rows; of one that computes with the masking numbers, they may overflow."""


class Unasked(Exception):
    """A probe has nothing to ask: the original accepts no such inputs, weights or attributes.

    The text says what was tried; it is empty where nothing was.
    """


def refuse_masks(probe: Probe, module: nn.Module, arguments: dict[str, Any]) -> None:
    """Refuses a probe whose rows are masked, where the original computes with what they are masked with.

    Raises:
        Unasked: it does.
    """
    if probe.stress != MASKED:
        return
    with calls.Overflows() as overflows:
        output = calls.call_original(module, arguments)
    if overflows.seen:
        raise Unasked("the original computes infinities from what rows are masked with")
    leaves = [computable(leaf) for leaf in flatten(output)[1] if leaf.is_floating_point()]
    if not all(bool((leaf.abs() <= MOST_MASKED).all()) for leaf in leaves):
        raise Unasked("the original's outputs follow what rows are masked with")


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

    @cached_property
    def usual(self) -> tuple[list[Any], frozenset[str]]:
        """The leaves of the outputs for the unchanged inputs, and the names of torch's operations."""
        with OperationWatch(guarded=False) as watch:
            leaves = calls.run_original(self.module, self.arguments)[1]
        return leaves, frozenset(watch.elements)

    @cached_property
    def usual_error(self) -> float:
        """The original's own error for the unchanged inputs, see ``_error``: TF32, for example, has few digits."""
        return _error(self.usual[0], calls.run_in_float64(self.exact(self.module), self.arguments))

    def accepts_own(self) -> bool:
        """Whether the original is exact at all, to be found out before the module changes: ``accepts`` compares with that.

        Raises:
            torch.OutOfMemoryError: there is too little memory to find out.
        """
        try:
            with self.in_stage(RUNNING):
                return math.isfinite(self.usual_error)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # the user's code may raise anything
            return False

    def accepts_inputs(self, arguments: dict[str, Any], names: Collection[str], nonfinite: bool) -> bool:
        """Whether the original accepts other arguments.

        Args:
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

    def accepts(
        self, module: nn.Module, arguments: dict[str, Any], nonfinite: bool, rough: bool = False
    ) -> bool:
        """Whether ``module`` gives outputs of the usual form, as finite and as exact as usual.

        Args:
            module: the original, perhaps changed.
            nonfinite: whether outputs may be NaN or infinite where they are usually finite.
            rough: whether they may be as rough as ``ROUGHEST``, whatever is usual.

        Raises:
            torch.OutOfMemoryError: there is too little memory to find out.
        """
        usual = self.usual[0]
        try:
            with self.in_stage(RUNNING):
                leaves = calls.run_original(module, arguments)[1]
            if not _same_form(leaves, usual):
                return False
            if nonfinite:
                return True
            if not _as_finite(leaves, usual):
                return False
            error = _error(leaves, calls.run_in_float64(self.exact(module), arguments))
            if rough:
                return error <= ROUGHEST
            usual_error = self.usual_error if error > 1 else 1.0
            alike = ALIKE * usual_error if math.isfinite(usual_error) else 0.0
            return error <= max(1.0, USUAL * min(usual_error, ROUGH), alike)
        except torch.OutOfMemoryError:
            raise  # with more memory it might accept them
        except Exception:  # the user's code may raise anything
            return False


def _same_form(leaves: Sequence[Any], usual: Sequence[Any]) -> bool:
    return [(leaf.shape, leaf.dtype) for leaf in leaves] == [(leaf.shape, leaf.dtype) for leaf in usual]


def _as_finite(leaves: Sequence[torch.Tensor], usual: Sequence[torch.Tensor]) -> bool:
    return not any(
        bool((computable(before).isfinite() & ~computable(after).isfinite()).any())
        for after, before in zip(leaves, usual, strict=True)
        if after.is_floating_point()
    )


def _error(leaves: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """Returns the largest error, where 1 means that about half of the digits are right; infinite for NaN."""
    return max(
        (
            _error_of(leaf.reshape(-1), truth.reshape(-1))
            for leaf, truth in zip(leaves, exact, strict=True)
            if leaf.is_floating_point() and leaf.numel()
        ),
        default=0.0,
    )


def _error_of(leaf: torch.Tensor, truth: torch.Tensor) -> float:
    """Compares errors with each number's magnitude plus the root mean square of those that are not 0, in chunks."""

    def chunks() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for some, exactly in zip(leaf.split(CHUNK), truth.split(CHUNK), strict=True):
            finite = computable(some).isfinite()
            yield torch.where(finite, some.double(), 0.0), torch.where(finite, exactly.double(), 0.0)

    peak = max(float(right.abs().amax()) for _, right in chunks()) or 1e-300
    squares = sum(float((right / peak).square().sum()) for _, right in chunks())
    numbers = sum(int(right.count_nonzero()) for _, right in chunks())
    scale = peak * (squares / max(numbers, 1)) ** 0.5
    errors = [
        float(((some - right).abs() / (right.abs() + scale).clamp_min(1e-300)).amax())
        for some, right in chunks()
    ]
    worst = math.inf if any(math.isnan(error) for error in errors) else max(errors)
    return worst / math.sqrt(torch.finfo(leaf.dtype).eps)
