"""Computes what a candidate must give: the original's outputs, in float64, and how far off they may be."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from kernelllm_judge.core.stages import RUNNING
from kernelllm_judge.memory import cached_bytes
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth import calls, numerics
from kernelllm_judge.truth.bounds import ErrorBounds, usual_size, with_unresolved_rows
from kernelllm_judge.truth.exhaust import read_kind, with_numbers_about_one
from kernelllm_judge.truth.jumps import RUNS, errors_of_rows
from kernelllm_judge.truth.numerics import Expected
from kernelllm_judge.truth.originals import Modules, Originals
from kernelllm_judge.truth.otherwise import InTf32, Mode, allowed_operations, modes
from kernelllm_judge.truth.prepared import tensors_of_call
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.reordered import Reordered
from kernelllm_judge.truth.runs import Runs, as_it_is, forms_of
from kernelllm_judge.truth.trivial import passing_trivial_output

EQUAL = frozenset({"equal-row", "equal-value", "two-value", "mixed-row", "low-row", "zero"})
"""Kinds of stress that make inputs equal to each other."""

FEW = 16
"""Elements of an output whose errors may all be small by chance…"""

TRIES = 6
"""…so that it is computed this often, for slightly other inputs each time…"""

SMALL = 1 << 20
"""…where the inputs together have no more elements than this, and once where they have more."""

DIRECTIONS = 4
"""Random directions in which inputs and weights are perturbed: one alone hardly changes some elements, and where all elements
of a row share a factor, none of the row…"""

MODERATE = 1 << 24
"""…where they have no more elements together than this, and one where they have more."""


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
        """How large each leaf of a case's output usually is, by its number."""

    def expected(
        self,
        structure: Any,
        original: list[torch.Tensor],
        modules: Modules,
        arguments: dict[str, Any],
        probe: Probe,
        closely: bool | None = None,
        share: float = 1.0,
    ) -> tuple[Expected, bool]:
        """Returns what is expected of a candidate, and whether there was enough memory to find all of it out.

        Inputs and weights are perturbed in several random directions, if there is memory for so many, or in one: by default
        that depends on their size. Only ``closely`` tells under stress which rows jump. ``share`` is that of the outputs
        which the modules give.
        """
        groups = [(structure, original)]
        [expected], enough = self.expected_apart(groups, modules, arguments, probe, closely, share)
        return expected, enough

    def expected_apart(
        self,
        groups: Sequence[tuple[Any, list[torch.Tensor]]],
        modules: Modules,
        arguments: dict[str, Any],
        probe: Probe,
        closely: bool | None = None,
        share: float = 1.0,
        tf32: bool = False,
    ) -> tuple[list[Expected], bool]:
        """Returns the same for groups of leaves, each with its structure, that the modules give one after the other.

        They have the runs in common, and nothing else: what one group cannot be asked, or may be off by, says nothing of another.
        On a GPU they may be computed in TF32, where settings allow it; elsewhere if ``tf32`` says so.
        """
        original = [leaf for _, leaves in groups for leaf in leaves]
        every, note = self._exact(modules, arguments, original)
        enough_memory = self._fits(modules.perturbed, arguments, original, runs=4)
        if not enough_memory:
            note += (
                "; there was too little memory to try small perturbations of the inputs and half precision"
            )
        small = sum(t.numel() for t in tensors_of_call(modules.perturbed, arguments, ())) <= MODERATE
        times = DIRECTIONS if closely and not small else 1
        directions = DIRECTIONS if (small if closely is None else closely) else 1
        if directions > 1 and not self._fits(modules.perturbed, arguments, original, runs=4 + directions):
            directions = 1
        nearby = self._nearby(modules, arguments, probe.seed, directions) if every and enough_memory else []
        few = [any(t.numel() <= FEW and t.is_floating_point() for t in leaves) for _, leaves in groups]
        equal = bool(EQUAL & {probe.stress, *probe.stripes}) or probe.directed is not None
        most = TRIES if any(few) and _elements(arguments) <= SMALL else times
        others = (
            list(self._elsewhere(modules, arguments, probe, most)) if nearby and (equal or any(few)) else []
        )
        otherwise = list(self._otherwise(modules, arguments, probe, tf32)) if every else []
        jump = closely and nearby and probe.stressed and _elements(arguments) <= MODERATE
        jumping = list(self._jumping(modules, arguments, probe, original, every)) if jump and every else []
        runs = Runs(every, nearby, others, otherwise, jumping).giving(len(original))
        elements, expected, start = int(share * _elements(arguments)), [], 0
        for (structure, own), is_few in zip(groups, few, strict=True):
            which = slice(start, start := start + len(own))
            some = runs.leaves(which, len(others) if is_few else 2 * times * equal)
            found = some.expect(structure, own, probe, self._policy, elements, note)
            expected.append(self._with_unresolved_rows(found, probe, which.start))
        return expected, enough_memory

    def _with_unresolved_rows(self, expected: Expected, probe: Probe, first: int) -> Expected:
        """Allows what float64 may have rounded to 0, by how large the case's output was for the first inputs that were not stressed.

        ``first`` is the number of its first leaf.
        """
        found: list[ErrorBounds | tuple[torch.Tensor, ...]] = []
        for number, (bounds, exact) in enumerate(zip(expected.bounds, expected.exact, strict=True), first):
            if isinstance(bounds, ErrorBounds):
                usual = self._sizes.get((probe.case, number)) or usual_size(bounds)
                if usual and not (probe.stress or probe.stripes or probe.directed):
                    self._sizes.setdefault((probe.case, number), usual)
                dtype = expected.original[number - first].dtype
                bounds = with_unresolved_rows(bounds, exact, dtype, usual or 1.0, self._policy)
                if read_kind(probe.stress):
                    bounds = with_numbers_about_one(bounds, dtype, self._policy)
            found.append(bounds)
        return replace(expected, bounds=tuple(found))

    def strictly(
        self,
        structure: Any,
        original: list[torch.Tensor],
        modules: Modules,
        arguments: dict[str, Any],
        probe: Probe,
        share: float = 1.0,
    ) -> Expected | None:
        """Returns what is expected by one run in float64: nothing is allowed but rounding and the original's own error.

        What passes this passes ``expected``, which allows more. None where that does not follow, as at steps, or where
        float64 is not available.
        """
        exact, _ = self._exact(modules, arguments, original)
        if exact is None or forms_of(exact) != forms_of(original):
            return None
        elements, free = int(share * _elements(arguments)), probe.stressed
        expected = numerics.expect(structure, original, exact, [], self._policy, elements=elements, free=free)
        return None if any(isinstance(b, ErrorBounds) and b.steps for b in expected.bounds) else expected

    def passing_trivial(
        self,
        module: torch.nn.Module,
        arguments: dict[str, Any],
        expected: Expected,
        other: list[torch.Tensor] | None,
        enough_memory: bool,
        shown: dict[str, Any] | None = None,
    ) -> str | None:
        """Returns the name of a trivial output that would pass, or None.

        ``shown`` are the arguments of which one passed through would be such an output; None: all of them.
        """
        with self._originals.in_stage(RUNNING):
            half = None
            # A user who sets a tolerance accepts such errors.
            if enough_memory and self._tolerance is None:
                half = calls.run_in_half(module, arguments, self._originals.place)
            return passing_trivial_output(
                expected, arguments if shown is None else shown, other, half, self._policy, self._tolerance
            )

    def _exact(
        self, modules: Modules, arguments: dict[str, Any], original: list[torch.Tensor]
    ) -> tuple[list[Any] | None, str]:
        """Returns the leaves in float64; or None and the reason why they are unavailable."""
        with self._originals.in_stage(RUNNING):
            why = "there is too little memory for float64"
            if self._fits(modules.perturbed, arguments, original, runs=2):
                try:
                    exact = self._originals.in_float64.run(modules.exact, arguments, about=original)
                except torch.cuda.OutOfMemoryError:
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
            self._attempt(partial(self._originals.in_float64.run, next(copies), arguments, change))
            for change in self._originals.perturbations(seed, directions)
        ]
        return [leaves for leaves in found if leaves]

    def _elsewhere(
        self, modules: Modules, arguments: dict[str, Any], probe: Probe, times: int
    ) -> Iterator[tuple[list[torch.Tensor], list[torch.Tensor]]]:
        """Yields the leaves for slightly perturbed inputs, as the original computes them and in float64.

        Where inputs are equal numbers, the original's errors may cancel by chance, in its own order of summation or in
        another, and there they do not. Where outputs have few elements, each error is small by chance now and then, and
        several are not.
        """
        for further in range(times):
            change = next(self._originals.perturbations(probe.seed + further))
            move = partial(_near, change=change, from_zero=change)
            near = calls.mapped(arguments, partial(self._originals.changed, change=move))
            if exact := self._attempt(partial(self._originals.in_float64.run, modules.exact, near)):
                orders = (contextlib.nullcontext(), Reordered())
                found = [self._attempt(partial(self._run, modules, near), order) for order in orders]
                yield from ((leaves, exact) for leaves in found if leaves)

    def _jumping(
        self,
        modules: Modules,
        arguments: dict[str, Any],
        probe: Probe,
        original: list[torch.Tensor],
        before: list[torch.Tensor],
    ) -> Iterator[list[torch.Tensor | None]]:
        """Yields ``errors_of_rows`` of each leaf in half precision, None for others, for inputs with other last digits.

        ``before`` are the leaves in float64 at the inputs themselves.
        """
        forms = forms_of(original)
        if not any(map(is_half, original)) or forms_of(before) != forms:
            return
        for further in range(RUNS):
            seed = probe.seed + further
            visible, fine = self._originals.visible_perturbation(seed), self._originals.perturbations(seed)
            move = partial(_near, change=visible, from_zero=next(fine))
            near = calls.mapped(arguments, partial(self._originals.changed, change=move))
            exact = self._attempt(partial(self._originals.in_float64.run, modules.exact, near))
            leaves = self._attempt(partial(self._run, modules, near)) if exact else []
            if forms_of(exact) == forms_of(leaves) == forms:
                yield [
                    errors_of_rows(*leaf, self._policy) if is_half(leaf[0]) else None
                    for leaf in zip(leaves, exact, before, strict=True)
                ]

    def _run(self, modules: Modules, arguments: dict[str, Any]) -> list[torch.Tensor]:
        return calls.run_original(modules.perturbed, arguments, self._originals.place)[1]

    def _attempt(
        self, run: Callable[[], list[Any]], way: contextlib.AbstractContextManager[Any] | None = None
    ) -> list[torch.Tensor]:
        """Returns the leaves that a run in a context gives; none where it fails.

        It must not lack memory: without the sensitivity, honest kernels would be rejected.
        """
        try:
            with self._originals.in_stage(RUNNING), way or contextlib.nullcontext():
                return run()
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:  # user code may check its inputs, and not everything can be done in another way
            return []

    def _otherwise(
        self, modules: Modules, arguments: dict[str, Any], probe: Probe, tf32: bool
    ) -> Iterator[tuple[Mode, list[torch.Tensor]]]:
        """Yields the leaves as other honest implementations might compute them, and in which way that is."""
        for mode in modes(tf32=tf32 or self._originals.device.startswith("cuda")):
            kind = probe.case, probe.sizes, type(mode)
            if self._used.get(kind) is False:
                continue
            leaves = self._attempt(partial(self._run, modules, arguments), mode)
            self._used[kind] = mode.used and bool(leaves)
            if self._used[kind]:
                yield mode, leaves

    def may_use_tf32(self, probe: Probe) -> bool:
        """Whether settings allow TF32 for what the original computes, as far as is known."""
        return bool(allowed_operations()) and self._used.get((probe.case, probe.sizes, InTf32)) is not False

    def _fits(
        self, module: torch.nn.Module, arguments: dict[str, Any], original: list[torch.Tensor], runs: int
    ) -> bool:
        """Whether there is memory for ``runs`` float64 copies of all tensors of a call."""
        needed = runs * 8 * sum(t.numel() for t in tensors_of_call(module, arguments, original))
        room: float = math.inf
        if self._policy.judge_bytes is not None:
            room = self._policy.judge_bytes
        elif self._originals.lie_on_host(arguments):
            # Their lease has room for outputs of two directions, or float64 is computed elsewhere, or in slices.
            return runs <= 4 or runs * 8 * sum(t.numel() for t in original) <= self._policy.slice_bytes
        elif self._originals.device.startswith("cuda"):
            room = cached_bytes()
            if needed > room:  # the driver takes long to answer
                room += torch.cuda.mem_get_info()[0]
        return needed <= room


def is_half(leaf: torch.Tensor) -> bool:
    """Whether a leaf is one whose rows may jump: not empty, in half precision."""
    return leaf.dtype in (torch.float16, torch.bfloat16) and leaf.numel() > 0


def _elements(arguments: dict[str, Any]) -> int:
    return sum(v.numel() for v in arguments.values() if isinstance(v, torch.Tensor))


def _near(
    tensor: torch.Tensor, part: int = 0, *, change: calls.Change, from_zero: calls.Change
) -> torch.Tensor:
    """Returns a slightly perturbed tensor of the same dtype; tiny numbers grow to the steps that ``from_zero`` makes about 1.

    ``part`` is the number of its rows' group, where it is changed some rows after the other. Some at a time are here, too:
    what lies between takes several times their memory.
    """
    near = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    step = max(1, MODERATE * tensor.shape[0] // max(1, tensor.numel())) if tensor.dim() else 1
    pairs = (t.split(step) if t.dim() else (t,) for t in (near, tensor))
    for target, rows in zip(*pairs, strict=True):
        moved = change(rows)
        if rows.is_floating_point():
            tiny = rows.abs() < torch.finfo(torch.float32).eps
            if bool(tiny.any()):
                moved = torch.where(tiny, moved + from_zero(torch.ones_like(rows)) - 1, moved)
        target.copy_(moved)
    return near
