"""Prepares calls with large outputs whose rows depend on each other, where GPU memory is scarce.

The original always runs for all rows, in float64 too, but only some rows of its outputs stay on the GPU: they are compared
slice by slice, as those of calls that can be cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from kernelllm_judge.truth.inputs import Inputs
from kernelllm_judge.truth.numerics import Expected
from kernelllm_judge.truth.originals import Modules, Originals, to_host
from kernelllm_judge.truth.prepared import Piece, Sliced, form_of
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.slices import Slicing
from kernelllm_judge.truth.truth import Truth
from kernelllm_judge.truth.variations import Change


class DependentRows:
    """Prepares such calls of one target."""

    def __init__(self, originals: Originals, inputs: Inputs, truth: Truth) -> None:
        """Starts without prepared probes."""
        self._originals = originals
        self._inputs = inputs
        self._truth = truth

    def slicing(self, leaves: list[torch.Tensor]) -> Slicing | None:
        """Returns how outputs are compared of which several copies would be too large; None for others."""
        policy = self._originals.policy
        if not self._originals.on_host or all(leaf.nbytes < policy.slice_bytes for leaf in leaves):
            return None
        counts = {leaf.shape[0] if leaf.dim() else 0 for leaf in leaves}
        if len(counts) != 1 or (rows := counts.pop()) < 2:
            return None
        widest = max(leaf.numel() // rows for leaf in leaves)
        return Slicing(frozenset(), rows, max(1, policy.slice_elements // max(widest, 1)))

    def expected(
        self,
        probe: Probe,
        modules: Modules,
        arguments: dict[str, Any],
        structure: Any,
        leaves: list[torch.Tensor],
        slicing: Slicing,
    ) -> Sliced:
        """Returns the expected outputs, computed slice by slice, each by whole calls.

        ``leaves`` are moved to the host's memory, in place of the list's tensors, so that the GPU's is freed.
        """
        forms = tuple(map(form_of, leaves))
        for i, leaf in enumerate(leaves):
            leaves[i] = to_host(leaf)

        def run(rows: slice) -> list[torch.Tensor]:
            return [leaf[rows].to(self._originals.device) for leaf in leaves]

        def expect(rows: slice, closely: bool) -> Expected:
            some = modules.giving_rows(rows)
            own = run(rows)
            expected, _ = self._truth.expected(
                structure, own, some, arguments, probe, closely, len(own[0]) / slicing.rows
            )
            return replace(expected, start=rows.start)

        def expect_strictly(rows: slice) -> Expected | None:
            own, some = run(rows), modules.giving_rows(rows)
            share = len(own[0]) / slicing.rows
            return self._truth.strictly(structure, own, some, arguments, probe, share)

        def confirm(placed: Mapping[str, Any]) -> None:
            """Has nothing to do: the original's outputs are those for all rows together."""

        pieces = tuple(Piece(rows) for rows in slicing.slices())
        return Sliced(structure, forms, pieces, expect, expect_strictly, run, confirm)

    def passing_trivial(
        self,
        probe: Probe,
        modules: Modules,
        arguments: dict[str, Any],
        expected: Sliced,
        changes: Mapping[str, Change],
        drawn: dict[str, Any],
    ) -> str | None:
        """Returns the name of a trivial output that would pass in the first slice, the middle one, and the last one, or None."""
        names = set()
        pieces = expected.pieces
        for piece in (pieces[0], pieces[len(pieces) // 2], pieces[-1]):
            some = modules.giving_rows(piece.rows).perturbed
            found = self._truth.passing_trivial(
                some,
                arguments,
                expected.expect(piece.rows, False),
                self._inputs.other(some, probe, changes, drawn),
                enough_memory=True,
                shown=self._rows_of(arguments, piece.rows, len(expected.original[0])),
            )
            names.add(found)
            if found is None or len(names) > 1:
                return None
        return names.pop()

    def _rows_of(self, arguments: dict[str, Any], rows: slice, count: int) -> dict[str, Any]:
        """Returns these rows of the arguments that have ``count``, where the original runs."""
        tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
        return {
            name: value[rows].to(self._originals.device)
            for name, value in tensors.items()
            if value.dim() and len(value) == count
        }
