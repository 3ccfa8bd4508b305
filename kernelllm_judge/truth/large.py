"""Prepares large probes: where the original treats each row by itself, outputs are computed slice by slice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.core.stages import RUNNING
from kernelllm_judge.findings import OriginalError
from kernelllm_judge.shared.leaves import flatten
from kernelllm_judge.truth import calls
from kernelllm_judge.truth.acceptance import Trial
from kernelllm_judge.truth.agreement import Agree, agrees_together, each_agrees, every
from kernelllm_judge.truth.inputs import Inputs
from kernelllm_judge.truth.numerics import Expected
from kernelllm_judge.truth.originals import Modules, Originals, to_host
from kernelllm_judge.truth.prepared import Piece, PreparedProbe, Sliced, bytes_of, form_of, tensors_of_call
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.slices import Slicing, equal_to_half, find_slicing, in_slices
from kernelllm_judge.truth.stress import PLANTED, TRANSFORMS
from kernelllm_judge.truth.truth import Truth
from kernelllm_judge.truth.unsupported import (
    original_errors,
    refuse_incomparable,
    updated_buffers,
)
from kernelllm_judge.truth.variations import allows_nonfinite, vary

STRIPED = frozenset({"stress", "nonfinite"})
"""Rules whose probes change rows, so that one call can hold the rows of several."""

Comparable = Callable[[Probe, Modules, dict[str, Any], Any], tuple[Any, list[torch.Tensor]]]
"""``ReferenceOutputs.comparable``."""


@dataclass(frozen=True)
class SlicedCase:
    """How a case's calls at some sizes are cut."""

    slicing: Slicing
    structure: Any
    """How the leaves of the outputs nest."""
    forms: tuple[torch.Tensor, ...]
    """The leaves, without data."""


class LargeCalls:
    """Prepares large probes of one target. Not thread-safe."""

    def __init__(self, originals: Originals, inputs: Inputs, truth: Truth, comparable: Comparable) -> None:
        """``comparable`` refuses outputs that no candidate can be compared with."""
        self._originals = originals
        self._inputs = inputs
        self._truth = truth
        self._comparable = comparable
        self._sliced: dict[tuple[str, tuple[tuple[str, int], ...]], SlicedCase | None] = {}
        self._uncut = False
        """Whether there was a large call that cannot be cut."""

    @property
    def cuts(self) -> bool:
        """Whether calls were cut, each large one that was tried."""
        return any(self._sliced.values()) and not self._uncut

    def sliced_case(self, probe: Probe, modules: Modules, drawn: dict[str, Any]) -> SlicedCase | None:
        """Returns how large calls are cut; None for small ones, and where rows are not independent."""
        key = probe.case, probe.sizes
        if key not in self._sliced:
            self._sliced[key] = self._find_slices(probe, modules, drawn)
        return self._sliced[key]

    def _find_slices(self, probe: Probe, modules: Modules, drawn: dict[str, Any]) -> SlicedCase | None:
        place, policy = self._originals.place, self._originals.policy
        output = calls.call_original(modules.perturbed, drawn, place=place)
        refuse_incomparable(output, probe)
        structure, leaves = flatten(output)
        del output
        # Two small matrices may have a large product.
        if bytes_of(tensors_of_call(modules.perturbed, drawn, leaves)) < policy.slice_bytes:
            return None
        slicing = None
        if not updated_buffers(modules.perturbed, drawn, probe, place):
            slicing = find_slicing(
                drawn,
                leaves,
                lambda arguments: calls.run_original(modules.perturbed, arguments, place)[1],
                lambda arguments: calls.run_in_float64(modules.exact, self._originals.placed(arguments)),
                policy.slice_elements,
            )
        self._uncut |= slicing is None
        return SlicedCase(slicing, structure, tuple(map(form_of, leaves))) if slicing else None

    def prepare_slices(
        self, probe: Probe, modules: Modules, drawn: dict[str, Any], sliced: SlicedCase
    ) -> PreparedProbe:
        """Prepares a large probe, whose expected outputs are computed slice by slice."""
        slicing = sliced.slicing
        first, second, *_ = slicing.slices()
        unchanged = self._cut(slicing, drawn, first)
        if probe.stripes:
            own = self._originals.own
            arguments = {k: own(v) if k in slicing.names else v for k, v in drawn.items()}
            pieces = self._stripe(probe, modules, arguments, slicing)
        else:
            case = self._originals.subject.case(probe.case)
            changes = self._inputs.changes(
                case, probe, modules, drawn, lambda some: self._cut(slicing, some, first)
            )
            arguments = drawn | {
                # The same rows of all inputs at once: they are changed alike.
                k: self._originals.changed(drawn[k], change, slicing.step * (k in slicing.names), own=False)
                for k, change in changes.items()
            }
            pieces = tuple(Piece(rows) for rows in slicing.slices())

        kept: list[torch.Tensor] = []
        """The whole call's outputs, where a slice's differ: libraries choose other algorithms for other sizes."""

        def run_all(placed: Mapping[str, Any]) -> list[torch.Tensor]:
            # Neither copied nor seeded: the original changes nothing, and draws nothing that matters.
            with original_errors(probe), self._originals.in_stage(RUNNING), torch.no_grad():
                return flatten(modules.perturbed(**nested(placed)))[1]

        def run(rows: slice) -> list[torch.Tensor]:
            if kept:
                return [leaf[rows].to(self._originals.device) for leaf in kept]
            return run_all(self._cut(slicing, arguments, rows))

        def expect(rows: slice, closely: bool) -> Expected:
            some = self._cut(slicing, arguments, rows)
            expected, _ = self._truth.expected(sliced.structure, run(rows), modules, some, probe, closely)
            return replace(expected, start=rows.start)

        def expect_strictly(rows: slice) -> Expected | None:
            some = self._cut(slicing, arguments, rows)
            return self._truth.strictly(sliced.structure, run(rows), modules, some, probe)

        def confirm(placed: Mapping[str, Any]) -> None:
            if self._originals.on_host:
                torch.cuda.empty_cache()  # of slices: all rows need room now
            outputs, policy = run_all(placed), self._originals.policy

            def pairs(each: Iterable[slice]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
                return in_slices(each, outputs, lambda rows: run_all(slicing.cut(dict(placed), rows)))

            def alike(agree: Agree) -> Iterator[torch.Tensor | bool]:
                each = (piece.rows for piece in pieces)
                return (a.shape == b.shape and agree(a, b, policy) for a, b in pairs(each))

            # The first at little expense and read at once, the second until one differs: in TF32 the first one does.
            if every(alike(each_agrees)) or all(map(bool, alike(agrees_together))):
                return
            # Where all inputs are equal, say, a stripe may hold nothing but rounding errors; a slice holds more.
            if not every(equal_to_half(leaf, whole) for leaf, whole in pairs(slicing.slices())):
                raise OriginalError(
                    f"the original treats each row by itself for the inputs given, but not at {probe.describe()}; "
                    "declare `dims` that reach lower, so that smaller inputs can be tried"
                )
            kept[:] = map(to_host, outputs) if self._originals.on_host else outputs

        if not self._originals.on_host:
            confirm(arguments)
        some = self._cut(slicing, arguments, first)
        self._comparable(probe, modules, some, calls.call_original(modules.perturbed, some))
        few_changes = probe.stress and probe.stress not in TRANSFORMS and probe.stress not in PLANTED
        others = unchanged if few_changes else self._cut(slicing, arguments, second)
        other = calls.run_original(modules.perturbed, others)[1]
        trivial = self._truth.passing_trivial(modules.perturbed, some, expect(first, False), other, True)
        expected = Sliced(sliced.structure, sliced.forms, pieces, expect, expect_strictly, run, confirm)
        on_host = self._originals.on_host
        return PreparedProbe(probe, modules.perturbed, arguments, expected, trivial, on_host=on_host)

    def few(self, probe: Probe, drawn: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments with which other weights are tried: a slice, where it is known how calls are cut."""
        sliced = self._sliced.get((probe.case, probe.sizes))
        if sliced is None:
            return drawn
        return self._cut(sliced.slicing, drawn, next(sliced.slicing.slices()))

    def merged(self, probes: Sequence[Probe]) -> list[Probe]:
        """Returns probes with those merged that can share a call, each in rows of its own.

        Call it when a probe of the case has been prepared: then it is known where rows are independent.
        """
        left: list[Probe] = []
        groups: defaultdict[Probe, list[Probe]] = defaultdict(list)
        for probe in probes:
            sliced = self._sliced.get((probe.case, probe.sizes))
            inputs = self._originals.subject.case(probe.case).domain.inputs
            tensors = {name for name, value in inputs.items() if isinstance(value, TensorSpec)}
            if sliced and probe.rule in STRIPED and tensors == sliced.slicing.names:
                groups[replace(probe, stress="", seed=0)].append(probe)
            else:
                left.append(probe)
        for group in groups.values():
            sliced = self._sliced[group[0].case, group[0].sizes]
            assert sliced is not None
            for start in range(0, len(group), sliced.slicing.rows):
                some = group[start : start + sliced.slicing.rows]
                left.append(replace(some[0], stress="", stripes=tuple(probe.stress for probe in some)))
        return left

    def _stripe(
        self, probe: Probe, modules: Modules, drawn: dict[str, Any], slicing: Slicing
    ) -> tuple[Piece, ...]:
        """Changes inputs in place, each stripe of rows in another way, as far as the original accepts it."""
        pieces: list[Piece] = []
        for rows, kind in zip(slicing.stripes(len(probe.stripes)), probe.stripes, strict=True):
            some = slicing.cut(drawn, rows)
            few = slice(0, min(slicing.step, rows.stop - rows.start))
            case = self._originals.subject.case(probe.case)
            tried = self._cut(slicing, some, few)
            trial = self._originals.trial(case, modules.perturbed, tried, lambda _: modules.exact)

            def accepts(
                arguments: dict[str, Any],
                names: Collection[str],
                trial: Trial = trial,
                few: slice = few,
                nonfinite: bool = allows_nonfinite(kind),
            ) -> bool:
                return trial.accepts_inputs(slicing.cut(arguments, few), names, nonfinite)

            on_host = self._originals.on_host
            changes = vary(tried if on_host else some, kind, probe.seed, (), accepts)
            for name, change in changes.items():
                for number, each in enumerate(slicing.slices(rows) if on_host else [rows]):
                    part = drawn[name][each]
                    part.copy_(change(part.to(self._originals.device), number))
            pieces += [Piece(each, kind if changes else "") for each in slicing.slices(rows)]
        return tuple(pieces)

    def _cut(self, slicing: Slicing, arguments: dict[str, Any], rows: slice) -> dict[str, Any]:
        """Returns the arguments of a call for some of the rows, where the original runs."""
        return self._originals.placed(slicing.cut(arguments, rows))
