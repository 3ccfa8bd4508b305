"""Prepares large probes: where the original treats each row by itself, outputs are computed slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.stages import RUNNING
from kernelllm_judge.findings import OriginalError
from kernelllm_judge.shared.leaves import flatten
from kernelllm_judge.truth import calls
from kernelllm_judge.truth.acceptance import refuse_masks
from kernelllm_judge.truth.agreement import agrees, every
from kernelllm_judge.truth.inputs import Inputs
from kernelllm_judge.truth.numerics import Expected
from kernelllm_judge.truth.originals import Modules, Originals
from kernelllm_judge.truth.prepared import PreparedProbe, Sliced, bytes_of, form_of, tensors_of_call
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.slices import Slicing, equal_to_half, find_slicing, in_slices
from kernelllm_judge.truth.stress import TRANSFORMS, planted
from kernelllm_judge.truth.truth import Truth
from kernelllm_judge.truth.unsupported import original_errors, refuse_incomparable, updated_buffers

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

    def sliced_case(self, probe: Probe, modules: Modules, drawn: dict[str, Any]) -> SlicedCase | None:
        """Returns how large calls are cut; None for small ones, and where rows are not independent."""
        key = probe.case, probe.sizes
        if key not in self._sliced:
            self._sliced[key] = self._find_slices(probe, modules, drawn)
        return self._sliced[key]

    def _find_slices(self, probe: Probe, modules: Modules, drawn: dict[str, Any]) -> SlicedCase | None:
        policy = self._originals.policy
        output = calls.call_original(modules.perturbed, drawn)
        refuse_incomparable(output, probe)
        structure, leaves = flatten(output)
        del output
        # Two small matrices may have a large product.
        if bytes_of(tensors_of_call(modules.perturbed, drawn, leaves)) < policy.slice_bytes:
            return None
        slicing = None
        if not updated_buffers(modules.perturbed, drawn, probe):
            slicing = find_slicing(
                drawn,
                leaves,
                lambda arguments: calls.run_original(modules.perturbed, arguments)[1],
                lambda arguments: calls.run_in_float64(modules.exact, arguments),
                policy.slice_elements,
            )
        return SlicedCase(slicing, structure, tuple(map(form_of, leaves))) if slicing else None

    def prepare_slices(
        self, probe: Probe, modules: Modules, drawn: dict[str, Any], sliced: SlicedCase
    ) -> PreparedProbe:
        """Prepares a large probe, whose expected outputs are computed slice by slice."""
        slicing = sliced.slicing
        first, second, *_ = slicing.slices()
        unchanged = slicing.cut(drawn, first)
        case = self._originals.subject.case(probe.case)
        changes = self._inputs.changes(case, probe, modules, drawn, lambda some: slicing.cut(some, first))
        arguments = self._inputs.changed(drawn, changes)
        pieces = tuple(slicing.slices())

        kept: list[torch.Tensor] = []
        """The whole call's outputs, where a slice's differ: libraries choose other algorithms for other sizes."""

        def run_all(some: dict[str, Any]) -> list[torch.Tensor]:
            # Neither copied nor seeded: the original changes nothing, and draws nothing that matters.
            with original_errors(probe), self._originals.in_stage(RUNNING), torch.no_grad():
                return flatten(modules.perturbed(**nested(some)))[1]

        def run(rows: slice) -> list[torch.Tensor]:
            if kept:
                return [leaf[rows] for leaf in kept]
            return run_all(slicing.cut(arguments, rows))

        def expect(rows: slice, closely: bool) -> Expected:
            some = slicing.cut(arguments, rows)
            expected, _ = self._truth.expected(sliced.structure, run(rows), modules, some, probe, closely)
            return replace(expected, start=rows.start)

        def expect_strictly(rows: slice) -> Expected | None:
            some = slicing.cut(arguments, rows)
            return self._truth.strictly(sliced.structure, run(rows), modules, some, probe)

        def confirm() -> None:
            """Raises ``OriginalError`` unless the original gives the same for all rows together."""
            outputs, policy = run_all(arguments), self._originals.policy

            def pairs() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
                return in_slices(pieces, outputs, lambda rows: run_all(slicing.cut(arguments, rows)))

            if every(a.shape == b.shape and agrees(a, b, policy) for a, b in pairs()):
                return
            if not every(equal_to_half(leaf, whole) for leaf, whole in pairs()):
                raise OriginalError(
                    f"the original treats each row by itself for the inputs given, but not at {probe.describe()}; "
                    "declare `dims` that reach lower, so that smaller inputs can be tried"
                )
            kept[:] = outputs

        confirm()
        refuse_masks(probe, modules.perturbed, arguments)
        some = slicing.cut(arguments, first)
        self._comparable(probe, modules, some, calls.call_original(modules.perturbed, some))
        few_changes = probe.stress and probe.stress not in TRANSFORMS and not planted(probe.stress)
        others = unchanged if few_changes else slicing.cut(arguments, second)
        other = calls.run_original(modules.perturbed, others)[1]
        trivial = self._truth.passing_trivial(modules.perturbed, some, expect(first, False), other, True)
        expected = Sliced(sliced.structure, sliced.forms, pieces, expect, expect_strictly, run)
        return PreparedProbe(probe, modules.perturbed, arguments, expected, trivial)

    def few(self, probe: Probe, drawn: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments with which other weights are tried: a slice, where it is known how calls are cut."""
        sliced = self._sliced.get((probe.case, probe.sizes))
        if sliced is None:
            return drawn
        return sliced.slicing.cut(drawn, next(sliced.slicing.slices()))
