"""Compares a candidate's outputs with the expected ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType

import torch

from pytest_kernelllm.core.records import Check
from pytest_kernelllm.judge.reference import numerics
from pytest_kernelllm.judge.reference.bounds import UNKNOWN, ErrorBounds, Least
from pytest_kernelllm.judge.reference.numerics import Expected
from pytest_kernelllm.judge.reference.prepared import Mark, PreparedProbe, Sliced
from pytest_kernelllm.judge.run.call import Judging, Uploaded, tensors_of

EXACTLY = 2
"""Pieces of a large output that are always compared with float64."""

SAMPLED = 4
"""Pieces that are compared where a few are enough."""


@dataclass(frozen=True)
class _Part:
    """Rows of the outputs to compare with what is expected there."""

    rows: slice | EllipsisType
    """Indexes every output's first dimension; an ellipsis: everything."""
    expected: Expected
    where: str
    mark: Mark | None = None
    """Identifies the outputs that are compared, where they may come again."""


def check_outputs(
    judging: Judging,
    uploaded: Uploaded,
    prepared: PreparedProbe,
    rule: str,
    context: str = "",
    sampled: bool = False,
) -> None:
    """Compares every output with float64, and records the differences under ``rule``.

    Args:
        judging: the candidate.
        uploaded: the buffers with its outputs.
        prepared: the probe that it was called with.
        rule: the rule that a wrong output breaks.
        context: beginning of the reason, where the probe's description is not enough.
        sampled: compares a large output in a few places, chosen at random.

    Raises:
        Decision: an output is wrong.
    """
    references = judging.references
    outputs = [buffer for buffer, _ in uploaded.outputs]
    worst: dict[int, tuple[float, Check]] = {}
    for part in _parts(judging, prepared, outputs, sampled):
        right = True
        for i, buffer in enumerate(outputs):
            found = numerics.compare(
                buffer[part.rows], part.expected, i, references.policy, references.tolerance
            )
            dtype = str(buffer.dtype).removeprefix("torch.")
            wrong = (
                f"{context}output {i} ({dtype} {list(buffer.shape)}) is wrong {found.detail}; "
                f"relative error {found.measured:.3g}, allowed {found.allowed:.3g}, at {part.where}"
            )
            measured = found.measured if math.isfinite(found.measured) else "not finite"
            detail = found.detail if found.passed else wrong
            check = Check(f"output {i} at {part.where}", found.passed, measured, found.allowed, detail)
            if not found.passed:
                judging.findings.record(rule, check)
            right = right and found.passed
            ratio = found.measured / found.allowed if found.allowed else found.measured
            if i not in worst or ratio > worst[i][0]:
                worst[i] = ratio, check
        if right and part.mark and isinstance(prepared.expected, Sliced):
            prepared.expected.passed.add(part.mark)
    for _, check in worst.values():
        judging.findings.record(rule, check)


def check_updates(
    judging: Judging, uploaded: Uploaded, prepared: PreparedProbe, rule: str, context: str = ""
) -> None:
    """Compares every buffer that the original updates with what it holds then in float64.

    Args:
        judging: the candidate.
        uploaded: the probe's buffers, after a call.
        prepared: the probe.
        rule: the rule that a wrong buffer breaks.
        context: beginning of the reason, where the probe's description is not enough.

    Raises:
        Decision: a buffer is wrong.
    """
    where, references = prepared.probe.describe(), judging.references
    for i, name in enumerate(prepared.updates.names):
        buffer = uploaded.state[name]
        difference = numerics.compare(
            buffer, prepared.updates.expected, i, references.policy, references.tolerance
        )
        untouched = torch.equal(buffer, tensors_of(prepared.module)[name])
        what = "is not updated" if untouched else f"is updated wrongly {difference.detail}"
        wrong = (
            f"{context}`self.{name}` {what}; relative error {difference.measured:.3g}, "
            f"allowed {difference.allowed:.3g}, at {where}"
        )
        measured = difference.measured if math.isfinite(difference.measured) else "not finite"
        detail = difference.detail if difference.passed else wrong
        check = Check(f"update of `{name}`", difference.passed, measured, difference.allowed, detail)
        judging.findings.record(rule, check)


def outputs_pass(judging: Judging, uploaded: Uploaded, prepared: PreparedProbe) -> bool:
    """Whether all outputs are right, without recording checks."""
    policy, tolerance = judging.references.policy, judging.references.tolerance
    outputs = [buffer for buffer, _ in uploaded.outputs]
    return all(
        numerics.compare(buffer[part.rows], part.expected, i, policy, tolerance).passed
        for part in _parts(judging, prepared, outputs, sampled=False)
        for i, buffer in enumerate(outputs)
    )


def _parts(
    judging: Judging, prepared: PreparedProbe, outputs: Sequence[torch.Tensor], sampled: bool
) -> Iterator[_Part]:
    """Yields what is to be compared with float64: everything, or those pieces of a large output that need it."""
    where, expected = prepared.probe.describe(), prepared.expected
    if not isinstance(expected, Sliced):
        yield _Part(..., expected, where)
        return
    pieces = expected.pieces
    if sampled and len(pieces) > SAMPLED:
        pieces = tuple(judging.rng.sample(pieces, SAMPLED))
    exactly = () if sampled else judging.rng.sample(pieces, min(EXACTLY, len(pieces)))
    least: dict[str, list[Least]] = {}
    """What is known of the error that the original's own allows, by the kind of stress."""
    for piece in sorted(pieces, key=lambda piece: piece not in exactly):
        # The original's inputs have a long way to the GPU from the host's memory; the outputs lie there.
        mark = expected.mark(piece, outputs) if prepared.on_host else None
        if piece not in exactly and mark in expected.passed:
            continue
        known = least.get(piece.stress, [UNKNOWN] * len(outputs))
        if piece in exactly or not _agree(expected, piece.rows, outputs, judging, known):
            exact = expected.expect(piece.rows)
            least.setdefault(
                piece.stress, [b.least if isinstance(b, ErrorBounds) else UNKNOWN for b in exact.bounds]
            )
            yield _Part(piece.rows, exact, f"{where}, {piece.stress} inputs" if piece.stress else where, mark)
        elif mark:
            expected.passed.add(mark)


def _agree(
    expected: Sliced,
    rows: slice,
    outputs: Sequence[torch.Tensor],
    judging: Judging,
    least: Sequence[Least],
) -> bool:
    policy, tolerance = judging.policy, judging.references.tolerance
    return all(
        numerics.agrees(buffer[rows], leaf, policy, tolerance, allowed)
        for buffer, leaf, allowed in zip(outputs, expected.run(rows), least, strict=True)
    )
