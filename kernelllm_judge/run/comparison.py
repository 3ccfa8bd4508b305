"""Compares a candidate's outputs with the expected ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import EllipsisType

import torch

from kernelllm_judge.core.records import Check
from kernelllm_judge.policy import Policy
from kernelllm_judge.run.call import Judging, Uploaded, tensors_of
from kernelllm_judge.truth import numerics
from kernelllm_judge.truth.agreement import agrees
from kernelllm_judge.truth.bounds import ErrorBounds
from kernelllm_judge.truth.numerics import Difference, Expected
from kernelllm_judge.truth.prepared import Mark, PreparedProbe, Sliced

EXACTLY = 2
"""Pieces of a large output, among those not seen before, that are always compared with float64."""

SAMPLED = 4
"""Pieces that are compared where a few are enough."""

HOPELESS = 1e4
"""Times the allowed error: so much more is not allowed for perturbing inputs in more directions."""

_NEEDS_A_GPU = "in TF32, which PyTorch's settings allow here, that much is right, so the verdict needs a GPU"

TRIED = 3
"""Pieces that show by not agreeing that the others need not be tried: in TF32 none agrees."""


@dataclass(frozen=True)
class _Part:
    """Rows of the outputs to compare with what is expected there."""

    rows: slice | EllipsisType
    """Indexes every output's first dimension; an ellipsis: everything."""
    expected: Expected
    where: str
    mark: Mark = ()
    """Identifies the outputs of a piece."""
    more: Callable[[], Expected] | None = None
    """Computes the expected outputs with more effort; None: ``expected`` is all there is."""
    in_tf32: Callable[[], Expected | None] | None = None
    """See ``PreparedProbe``."""
    without_shortcuts: Callable[[], Expected | None] | None = None
    """See ``PreparedProbe``."""

    @cached_property
    def closely(self) -> Expected:
        """The expected outputs, computed with more effort."""
        return self.expected if self.more is None else self.more()

    def compare(self, output: torch.Tensor, leaf: int, policy: Policy, tolerance: float | None) -> Difference:
        """Compares these rows of one output, see ``numerics.compare``; closely if the output would be wrong."""
        rows = output[self.rows]
        found = numerics.compare(rows, self.expected, leaf, policy, tolerance)
        if not found.passed and self.without_shortcuts and (other := self.without_shortcuts()):
            directly = numerics.compare(rows, other, leaf, policy, tolerance)
            if directly.passed:
                return directly
            # Rounding of what takes the shortcut is what is allowed elsewhere.
            lost = rows.isnan() & other.exact[leaf].isnan()
            rows = torch.where(lost, self.expected.exact[leaf].to(rows.dtype), rows)
            found = numerics.compare(rows, self.expected, leaf, policy, tolerance)
        if self.more is None or found.passed or self._hopeless(found, rows, leaf):
            return found
        return numerics.compare(rows, self.closely, leaf, policy, tolerance)

    def is_right_in_tf32(
        self, found: Difference, output: torch.Tensor, leaf: int, policy: Policy, tolerance: float | None
    ) -> bool:
        """Whether a wrong output errs no more than TF32 may on a GPU."""
        if self.in_tf32 is None or self._hopeless(found, output[self.rows], leaf):
            return False
        expected = self.in_tf32()
        return (
            expected is not None
            and numerics.compare(output[self.rows], expected, leaf, policy, tolerance).passed
        )

    def _hopeless(self, found: Difference, rows: torch.Tensor, leaf: int) -> bool:
        """Whether these rows are so wrong that no closer look would let it pass."""
        if not isinstance(self.expected.bounds[leaf], ErrorBounds):
            return False
        if math.isfinite(found.measured):
            # What is larger than its whole row may be noise where the exact result is 0.
            return HOPELESS * found.allowed < found.measured <= 2.0
        numbers = self.expected.original[leaf].isfinite() & self.expected.exact[leaf].isfinite()
        return bool((rows.isnan() & numbers).any())


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
        context: beginning of the reason, where the probe's description is not enough.
        sampled: compares a large output in a few places, chosen at random.

    Raises:
        Decision: an output is wrong. One that only TF32 makes right is noted as ``Findings.undecided``.
    """
    references = judging.references
    outputs = [buffer for buffer, _ in uploaded.outputs]
    unseen = _unseen(judging, prepared, outputs, sampled)
    right = dict(unseen)
    worst: dict[int, tuple[float, Check]] = {}
    for part in _parts(judging, prepared, outputs, unseen, sampled):
        for i, buffer in enumerate(outputs):
            found = part.compare(buffer, i, references.policy, references.tolerance)
            dtype = str(buffer.dtype).removeprefix("torch.")
            wrong = f"{context}output {i} ({dtype} {list(buffer.shape)}) is wrong"
            check = check_of(f"output {i} at {part.where}", found, wrong, part.where)
            if not found.passed:
                if part.is_right_in_tf32(found, buffer, i, references.policy, references.tolerance):
                    judging.findings.undecided = (
                        judging.findings.undecided or f"{check.detail}; {_NEEDS_A_GPU}"
                    )
                    continue
                judging.findings.record(rule, check)
                right.pop(part.mark, None)
            ratio = found.measured / found.allowed if found.allowed else found.measured
            if i not in worst or ratio > worst[i][0]:
                worst[i] = ratio, check
    for _, check in worst.values():
        judging.findings.record(rule, check)
    judging.findings.count_decisions()
    if right and isinstance(prepared.expected, Sliced):
        prepared.expected.remember(right, outputs)


def check_updates(
    judging: Judging, uploaded: Uploaded, prepared: PreparedProbe, rule: str, context: str = ""
) -> None:
    """Compares every buffer that the original updates with what it holds then in float64.

    Args:
        context: beginning of the reason, where the probe's description is not enough.

    Raises:
        Decision: a buffer is wrong.
    """
    where, references = prepared.probe.describe(), judging.references
    for i, name in enumerate(prepared.updates.names):
        buffer = uploaded.state[name]
        expected, how = prepared.updates.expected, (i, references.policy, references.tolerance)
        difference = numerics.compare(buffer, expected, *how)
        if not difference.passed and prepared.closely is not None:
            difference = numerics.compare(buffer, prepared.closely()[1], *how)
        untouched = torch.equal(buffer, tensors_of(prepared.module)[name])
        found = replace(difference, detail="") if untouched and not difference.passed else difference
        wrong = f"{context}`self.{name}` is {'not updated' if untouched else 'updated wrongly'}"
        judging.findings.record(rule, check_of(f"update of `{name}`", found, wrong, where))


def check_of(name: str, found: Difference, wrong: str, where: str) -> Check:
    """Returns a difference as a check; ``wrong`` begins the sentence for one that failed, ``where`` is its probe."""
    sentence = f"{' '.join(filter(None, (wrong, found.detail)))}; {found.figures}, at {where}"
    measured = found.measured if math.isfinite(found.measured) else "not finite"
    return Check(name, found.passed, measured, found.allowed, found.detail if found.passed else sentence)


def outputs_pass(judging: Judging, uploaded: Uploaded, prepared: PreparedProbe) -> bool:
    """Whether all outputs are right, or would be on a GPU, in TF32; without recording checks."""
    how = judging.references.policy, judging.references.tolerance
    outputs = [buffer for buffer, _ in uploaded.outputs]
    unseen = _unseen(judging, prepared, outputs, sampled=False)
    return all(
        (found := part.compare(buffer, i, *how)).passed or part.is_right_in_tf32(found, buffer, i, *how)
        for part in _parts(judging, prepared, outputs, unseen, sampled=False)
        for i, buffer in enumerate(outputs)
    )


def updates_pass(judging: Judging, uploaded: Uploaded, prepared: PreparedProbe) -> bool:
    """Whether every buffer that the original updates is right, without recording checks."""
    expected, how = prepared.updates.expected, (judging.references.policy, judging.references.tolerance)
    return all(
        numerics.compare(uploaded.state[name], expected, i, *how).passed
        for i, name in enumerate(prepared.updates.names)
    )


def _unseen(
    judging: Judging, prepared: PreparedProbe, outputs: Sequence[torch.Tensor], sampled: bool
) -> dict[Mark, slice]:
    """Returns the pieces of a large output, or some of them, but those whose equals were found right before."""
    expected = prepared.expected
    if not isinstance(expected, Sliced):
        return {}
    pieces = expected.pieces
    if sampled and len(pieces) > SAMPLED:
        pieces = tuple(judging.rng.sample(pieces, SAMPLED))
    marks = expected.marks(pieces, outputs)
    return {mark: piece for mark, piece in zip(marks, pieces, strict=True) if mark not in expected.passed}


def _parts(
    judging: Judging,
    prepared: PreparedProbe,
    outputs: Sequence[torch.Tensor],
    unseen: Mapping[Mark, slice],
    sampled: bool,
) -> Iterator[_Part]:
    """Yields what is to be compared with float64: everything, or those pieces of a large output that need it."""
    where, expected = prepared.probe.describe(), prepared.expected
    if isinstance(expected, Sliced):
        exactly = [] if sampled else judging.rng.sample(list(unseen), min(EXACTLY, len(unseen)))
        yield from _Pieces(judging, expected, outputs, unseen, where).parts(exactly)
    else:
        close = prepared.closely
        more = None if close is None else lambda: close()[0]
        in_tf32, without = prepared.in_tf32, prepared.without_shortcuts
        yield _Part(..., expected, where, more=more, in_tf32=in_tf32, without_shortcuts=without)


@dataclass(frozen=True)
class _Pieces:
    """Pieces of a large output that were not seen before."""

    judging: Judging
    expected: Sliced
    outputs: Sequence[torch.Tensor]
    unseen: Mapping[Mark, slice]
    where: str

    def parts(self, exactly: Sequence[Mark]) -> Iterator[_Part]:
        """Yields the pieces for which all bounds are derived: these, and those that are not clearly right."""
        yield from map(self._in_float64, exactly)
        rest = [mark for mark in self.unseen if mark not in exactly]
        self.judging.rng.shuffle(rest)
        tried, others = rest[:TRIED], rest[TRIED:]
        left = self._disagreeing(tried)
        for mark in left + (others if left == tried else self._disagreeing(others)):
            if not self._strictly_right(mark):
                yield self._in_float64(mark)

    def _in_float64(self, mark: Mark) -> _Part:
        rows = self.unseen[mark]
        # One direction hardly moves some of many elements, and honest kernels seldom need more.
        more = partial(self.expected.expect, rows, True)
        return _Part(rows, self.expected.expect(rows, False), self.where, mark, more)

    def _disagreeing(self, marks: Sequence[Mark]) -> list[Mark]:
        """Returns the pieces of which some output does not agree with the original's. All of it is read at once."""
        policy, tolerance, flags = self.judging.policy, self.judging.references.tolerance, []
        for mark in marks:
            leaves = zip(self._got(mark), self.expected.run(self.unseen[mark]), strict=True)
            flags.append(torch.stack([agrees(*leaf, policy, tolerance) for leaf in leaves]).all())
        agreed = torch.stack(flags).tolist() if flags else []
        return [mark for mark, right in zip(marks, agreed, strict=True) if not right]

    def _strictly_right(self, mark: Mark) -> bool:
        policy, tolerance = self.judging.policy, self.judging.references.tolerance
        expected = self.expected.expect_strictly(self.unseen[mark])
        return expected is not None and all(
            numerics.compare(leaf, expected, i, policy, tolerance, described=False).passed
            for i, leaf in enumerate(self._got(mark))
        )

    def _got(self, mark: Mark) -> list[torch.Tensor]:
        return [output[self.unseen[mark]] for output in self.outputs]
