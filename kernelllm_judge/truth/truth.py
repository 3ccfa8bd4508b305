"""Computes what a candidate must give: the original's outputs, in float64, and how far off they may be."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.eight_bits import computable
from kernelllm_judge.core.stages import RUNNING
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth import calls, numerics
from kernelllm_judge.truth.bounds import ErrorBounds
from kernelllm_judge.truth.exhaust import read_kind, with_numbers_about_one
from kernelllm_judge.truth.honest import (
    Evaluation,
    InTf32,
    Reordered,
    allowed_operations,
    modes,
    shape_and_kind,
)
from kernelllm_judge.truth.numerics import Expected
from kernelllm_judge.truth.originals import Modules, Originals
from kernelllm_judge.truth.prepared import tensors_of_call
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.stress import WHOLE_HALVES
from kernelllm_judge.truth.trivial import passing_trivial_output

AT_ONCE = 1 << 24
"""Elements of a tensor that is perturbed at once."""


class Truth:
    """Computes the expected outputs of one target."""

    def __init__(self, originals: Originals, tolerance: float | None) -> None:
        """``tolerance`` is the marker's, or None."""
        self._originals = originals
        self._policy: Policy = originals.policy
        self._tolerance = tolerance
        self._used: dict[tuple[Any, ...], bool] = {}
        """Whether a way to compute a case of some sizes otherwise changes anything."""
        self._sizes: dict[tuple[str, int], float] = {}
        """The largest magnitude of each leaf of a case's output where it is not stressed, by its number."""

    def expected(
        self,
        structure: Any,
        original: list[torch.Tensor],
        modules: Modules,
        arguments: dict[str, Any],
        probe: Probe,
        closely: bool = False,
    ) -> tuple[Expected, bool]:
        """Returns what is expected of a candidate, and whether there was enough memory to find all of it out.

        ``closely`` tells more of what honest kernels may give, in many runs at inputs with other last digits.
        """
        groups = [(structure, original)]
        [expected], enough = self.expected_apart(groups, modules, arguments, probe, closely)
        return expected, enough

    def expected_apart(
        self,
        groups: Sequence[tuple[Any, list[torch.Tensor]]],
        modules: Modules,
        arguments: dict[str, Any],
        probe: Probe,
        closely: bool = False,
        tf32: bool = False,
    ) -> tuple[list[Expected], bool]:
        """Returns the same for groups of leaves, each with its structure, that the modules give one after the other.

        They have the runs in common, and nothing else: what one group cannot be asked, or may be off by, says nothing of another.
        On a GPU they may be computed in TF32, where settings allow it; elsewhere if ``tf32`` says so.
        """
        original = [leaf for _, leaves in groups for leaf in leaves]
        exact, note = self._exact(modules, arguments, original)
        enough_memory = self._fits(modules.perturbed, arguments, original, runs=4)
        if not enough_memory:
            note += (
                "; there was too little memory to try small perturbations of the inputs and half precision"
            )
        further = self._policy.honest_runs if closely and enough_memory else 0
        nearby = self._nearby(modules, arguments, probe.seed, 1 + further) if exact and enough_memory else []
        found = numerics.expect(
            None,
            original,
            exact,
            nearby,
            self._policy,
            elements=_elements(arguments),
            free=probe.stressed,
            evaluations=self._honest(modules, arguments, probe, tf32, further) if exact else (),
            usual=lambda leaf: self._sizes.get((probe.case, leaf)),
            steady=probe.stress == WHOLE_HALVES or bool(read_kind(probe.stress)),
        )
        if read_kind(probe.stress):
            widened = [
                with_numbers_about_one(bounds, self._policy) if isinstance(bounds, ErrorBounds) else bounds
                for bounds in found.bounds
            ]
            found = replace(found, bounds=tuple(widened))
        for number, bounds in enumerate(found.bounds):
            if isinstance(bounds, ErrorBounds) and bounds.ruler.peak and not (probe.stress or probe.directed):
                self._sizes.setdefault((probe.case, number), bounds.ruler.peak)
        expected, start = [], 0
        for structure, own in groups:
            which = slice(start, start := start + len(own))
            other = exact is not None and list(map(shape_and_kind, exact[which])) != list(
                map(shape_and_kind, own)
            )
            why = as_it_is("its outputs have other shapes or types in float64") if other else ""
            parts = found.original[which], found.exact[which], found.bounds[which]
            expected.append(Expected(structure, *parts, found.free, (why + note).removeprefix("; ")))
        return expected, enough_memory

    def strictly(
        self,
        structure: Any,
        original: list[torch.Tensor],
        modules: Modules,
        arguments: dict[str, Any],
        probe: Probe,
    ) -> Expected | None:
        """Returns what is expected by one run in float64: nothing is allowed but rounding and the original's own error.

        What passes this passes ``expected``, which allows more. None where float64 is not available.
        """
        exact, _ = self._exact(modules, arguments, original)
        if exact is None or list(map(shape_and_kind, exact)) != list(map(shape_and_kind, original)):
            return None
        elements = _elements(arguments)
        return numerics.expect(
            structure, original, exact, [], self._policy, elements=elements, free=probe.stressed
        )

    def passing_trivial(
        self,
        module: torch.nn.Module,
        arguments: dict[str, Any],
        expected: Expected,
        other: list[torch.Tensor] | None,
        enough_memory: bool,
    ) -> str | None:
        """Returns the name of a trivial output that would pass, or None."""
        with self._originals.in_stage(RUNNING):
            half = None
            # A user who sets a tolerance accepts such errors.
            if enough_memory and self._tolerance is None:
                half = calls.run_in_half(module, arguments)
            return passing_trivial_output(expected, arguments, other, half, self._policy, self._tolerance)

    def _exact(
        self, modules: Modules, arguments: dict[str, Any], original: list[torch.Tensor]
    ) -> tuple[list[Any] | None, str]:
        """Returns the leaves in float64; or None and the reason why they are unavailable."""
        with self._originals.in_stage(RUNNING):
            why = "there is too little memory for float64"
            if self._fits(modules.perturbed, arguments, original, runs=2):
                try:
                    exact = calls.run_in_float64(modules.exact, arguments)
                except torch.OutOfMemoryError:
                    pass
                except Exception as error:  # e.g. an operation that asks for float32
                    why = f"it fails in float64 ({type(error).__name__})"
                else:
                    if len(exact) == len(original):
                        return exact, ""
                    why = "it has another number of outputs in float64"
            return None, as_it_is(why)

    def _nearby(
        self, modules: Modules, arguments: dict[str, Any], seed: int, directions: int
    ) -> list[list[torch.Tensor]]:
        """Returns the leaves in float64 for each perturbation of weights and inputs at which the original runs."""
        copies = modules.nearby(directions)
        found = [
            # No name for a copy of large weights: it is gone when the next one is made.
            self._attempt(partial(calls.run_in_float64, next(copies), arguments, change))
            for change in self._originals.perturbations(seed, directions)
        ]
        return [leaves for leaves in found if leaves]

    def _honest(
        self, modules: Modules, arguments: dict[str, Any], probe: Probe, tf32: bool, further: int
    ) -> Iterator[Evaluation]:
        """Yields what other honest implementations might give, and then so many pairs of what they might give at inputs with
        other last digits: there errors are small by chance, or cancel in equal numbers, no more often than elsewhere."""
        for number, mode in enumerate(modes(tf32=tf32 or accelerator.is_gpu(self._originals.device))):
            kind = probe.case, probe.sizes, number
            if self._used.get(kind) is False:
                continue
            leaves = self._attempt(partial(self._run, modules, arguments), mode)
            self._used[kind] = mode.used and bool(leaves)
            if self._used[kind]:
                yield Evaluation(leaves, None, mode.terms)
        for number in range(further):
            near = self.nearby(arguments, probe.seed + number)
            if exact := self._attempt(partial(calls.run_in_float64, modules.exact, near)):
                for order in (contextlib.nullcontext(), Reordered()):
                    if leaves := self._attempt(partial(self._run, modules, near), order):
                        yield Evaluation(leaves, exact)

    def nearby(self, arguments: dict[str, Any], seed: int) -> dict[str, Any]:
        """Returns the arguments with other last digits."""
        visible, fine = self._originals.visible_perturbation(seed), self._originals.perturbations(seed)
        return calls.mapped(arguments, partial(_near, change=visible, from_zero=next(fine)))

    def _run(self, modules: Modules, arguments: dict[str, Any]) -> list[torch.Tensor]:
        return calls.run_original(modules.perturbed, arguments)[1]

    def _attempt(
        self, run: Callable[[], list[Any]], way: contextlib.AbstractContextManager[Any] | None = None
    ) -> list[torch.Tensor]:
        """Returns the leaves that a run in a context gives; none where it fails.

        It must not lack memory: without the sensitivity, honest kernels would be rejected.
        """
        try:
            with self._originals.in_stage(RUNNING), way or contextlib.nullcontext():
                return run()
        except torch.OutOfMemoryError:
            raise
        except Exception:  # user code may check its inputs, and not everything can be done in another way
            return []

    def may_use_tf32(self, probe: Probe) -> bool:
        """Whether settings allow TF32 for what the original computes, as far as is known."""
        first = [isinstance(mode, InTf32) for mode in modes(tf32=True)].index(True)
        return bool(allowed_operations()) and self._used.get((probe.case, probe.sizes, first)) is not False

    def _fits(
        self, module: torch.nn.Module, arguments: dict[str, Any], original: list[torch.Tensor], runs: int
    ) -> bool:
        """Whether there is memory for ``runs`` float64 copies of all tensors of a call."""
        needed = runs * 8 * sum(t.numel() for t in tensors_of_call(module, arguments, original))
        room: float = math.inf
        if self._policy.judge_bytes is not None:
            room = self._policy.judge_bytes
        elif accelerator.is_gpu(self._originals.device):
            room = accelerator.cached_bytes()
            if needed > room:  # the driver takes long to answer
                room += accelerator.free_bytes()
        return needed <= room


def as_it_is(why: str) -> str:
    """Returns the note of what cannot be compared with float64."""
    return f"compared with the original as it is: {why}"


def _elements(arguments: dict[str, Any]) -> int:
    return sum(v.numel() for v in arguments.values() if isinstance(v, torch.Tensor))


def _near(tensor: torch.Tensor, *, change: calls.Change, from_zero: calls.Change) -> torch.Tensor:
    """Returns a slightly perturbed tensor of the same dtype; tiny numbers grow to the steps that ``from_zero`` makes about 1.

    Some rows are made at a time: what lies between takes several times their memory.
    """
    near = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    step = max(1, AT_ONCE * tensor.shape[0] // max(1, tensor.numel())) if tensor.dim() else 1
    pairs = (t.split(step) if t.dim() else (t,) for t in (near, tensor))
    for target, rows in zip(*pairs, strict=True):
        moved = change(rows)
        if rows.is_floating_point():
            tiny = computable(rows).abs() < torch.finfo(torch.float32).eps
            if bool(tiny.any()):
                moved = torch.where(tiny, moved + from_zero(torch.ones_like(rows)) - 1, moved)
        target.copy_(moved)
    return near
