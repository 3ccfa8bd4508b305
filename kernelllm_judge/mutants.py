"""Requires that every operation of a candidate's kernels matters: with another result, an output must be wrong somewhere.

What may be anything without any probe showing it was judged by none: a term that is 0 at all probes, and large where nobody
looked. As in mutation testing (DeMillo, Lipton and Sayward, 1978), each operation gets another result in Triton's interpreter,
a smaller multiple of its own, and each sum loses a constant; one call in which an output, a gradient or an updated buffer is
then wrong, or farther from float64 than the candidate's own, settles it. A term that only adds an error does neither, but for
what rounding happens to cancel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kernelllm_judge.core.records import Check
from kernelllm_judge.coverage.device import is_place, quoted
from kernelllm_judge.findings import Decision, OriginalError, OutOfTime
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.plans import Plan
from kernelllm_judge.run.backward import Backward, gradients_pass, upload_backward
from kernelllm_judge.run.call import Judging, Uploaded, poison, upload
from kernelllm_judge.run.comparison import outputs_pass, updates_pass
from kernelllm_judge.truth.acceptance import Unasked
from kernelllm_judge.truth.gradients import Gradients
from kernelllm_judge.truth.numerics import Expected
from kernelllm_judge.truth.prepared import PreparedProbe
from kernelllm_judge.truth.probes import Probe, elements

RULE = "operations"

MOST = 1024
"""Operations of a candidate that are examined; one with more is undecided."""

FARTHER = 1.5
"""Times the candidate's own distance from float64, mean or largest, beyond which a mutant is told from it."""


@dataclass(frozen=True)
class Mutant:
    """An operation with another result."""

    operation: tuple[Any, ...]
    """What identifies it to the worker: the kernel, the places, the innermost first, and its name."""
    scaled: bool
    """Whether the result is a smaller multiple of its own; otherwise a constant is not added."""

    def describe(self, source: str) -> str:
        """Says what made no difference: ``line 14: `tl.exp(-d * d)` made no difference``."""
        what = "made no difference" if self.scaled else "is right without its constant"
        return f"{quoted(self.operation[1][0], source)} {what}"


@dataclass(frozen=True)
class _Seen:
    """What a call shows."""

    reply: dict[str, Any]
    prepared: PreparedProbe
    uploaded: Uploaded
    backward: Backward | None
    errors: tuple[float, ...] = ()
    """Mean and largest distances from float64, of each output, updated buffer and gradient."""

    @property
    def failed(self) -> bool:
        """Whether there are no outputs."""
        return "error" in self.reply or self.reply.get("fault") is not None

    def is_right(self, judging: Judging) -> bool:
        """Whether all of these are right; to be asked before the next call. Of what is wrong it may take long to find out."""
        if self.failed:
            return False
        forward = outputs_pass(judging, self.uploaded, self.prepared)
        right = forward and updates_pass(judging, self.uploaded, self.prepared)
        return right and (self.backward is None or gradients_pass(judging, self.backward))


@dataclass(frozen=True)
class _Place:
    """A probe, with its reference gradients where a backward pass follows, and what the candidate shows there."""

    prepared: PreparedProbe
    gradients: Gradients | None
    errors: tuple[float, ...]


@dataclass
class Mutants:
    """All mutants of a candidate, and which of them no probe has told from it."""

    judging: Judging
    reserve: float
    """Seconds of the worker that are left to it."""
    known: dict[Mutant, Probe] = field(default_factory=dict)
    """The probe at which each was found, which runs its operation."""
    told: set[Mutant] = field(default_factory=set)
    survived: list[Mutant] = field(default_factory=list)
    """Those that no probe has told from the candidate."""
    places: dict[Probe, list[_Place]] = field(default_factory=dict)

    def examine(self, probes: dict[Probe, bool]) -> None:
        """Runs each mutant until a probe tells it from the candidate.

        The probe at which one was found tells most of them. Those that are left go through all probes one after the other, so
        that what there is no time for is not examined at all, and in an order that a candidate cannot predict.

        Args:
            probes: whether each is run with a backward pass; those of small sizes first.

        Raises:
            OutOfTime: no more time is left.
        """
        places: dict[tuple[str, Any], Probe] = {}
        for probe in probes:
            places.setdefault((probe.case, probe.sizes), probe)
        for probe in places.values():  # operations that only some sizes reach are found there
            self._open(probe, probes[probe])
        examined = 0
        for mutant, probe in list(self.known.items()):
            self._examine(mutant, {probe: probes[probe]})
        while left := [each for each in list(self.known)[examined:] if each not in self.told]:
            examined = len(self.known)  # other probes may reach more of them
            self.judging.rng.shuffle(left)
            for mutant in left:
                case = self.known[mutant].case  # others may have kernels of their own
                own = {probe: backward for probe, backward in probes.items() if probe.case == case}
                if not self._examine(mutant, own | probes):
                    self.survived.append(mutant)

    def _examine(self, mutant: Mutant, probes: Mapping[Probe, bool]) -> bool:
        for probe, backward in probes.items():
            for place in self._open(probe, backward):
                if self.judging.worker.left < self.reserve:
                    raise OutOfTime("no time is left for mutants")
                if self._is_told(place, mutant):
                    self.told.add(mutant)
                    return True
        return False

    def _open(self, probe: Probe, backward: bool) -> list[_Place]:
        """Returns what a mutant is run at, and adds the operations that are reached there."""
        if probe not in self.places:
            self.places[probe] = []
            with contextlib.suppress(Unasked, OriginalError):
                references = self.judging.references
                prepared = references.prepare(probe)
                for gradients in (None, references.gradients(prepared)) if backward else (None,):
                    own = self._run(prepared, gradients, {})
                    for operation, added in _read(own.reply.get("mutable", [])):
                        for scaled in (True, False)[: 1 + added]:
                            self.known.setdefault(Mutant(operation, scaled), probe)
                    # Other values are not asked of what is wrong, so nothing can be told there.
                    if own.is_right(self.judging):
                        self.places[probe].append(_Place(prepared, gradients, own.errors))
        return self.places[probe]

    def _is_told(self, place: _Place, mutant: Mutant) -> bool:
        kernel, places, name = mutant.operation
        named = [kernel, [list(place) for place in places], name]
        request = {"operation": named, "scaled": mutant.scaled}
        try:
            seen = self._run(place.prepared, place.gradients, request)
        except WorkerDied as death:  # what a mutant does is not the candidate's fault
            raise OutOfTime(f"{death}") from None
        if seen.failed:
            return True
        if seen.reply.get("mutated") is not True:
            return False
        pairs = zip(seen.errors, place.errors, strict=True)
        return any(error > FARTHER * before for error, before in pairs) or not seen.is_right(self.judging)

    def _run(self, prepared: PreparedProbe, gradients: Gradients | None, mutant: dict[str, Any]) -> _Seen:
        judging = self.judging
        request: dict[str, Any] = {"how": "sanitized", "all_configurations": False, "mutant": mutant}
        backward = upload_backward(judging, prepared, gradients, gradients.names) if gradients else None
        if backward:
            request["grad"] = backward.request
        uploaded = backward.uploaded if backward else upload(judging, prepared)
        for buffer, _ in uploaded.outputs:
            poison(buffer)
        descriptions = [description for _, description in uploaded.outputs]
        reply = judging.worker.request("run", inputs=uploaded.arguments, outputs=descriptions, **request)
        seen = _Seen(reply, prepared, uploaded, backward)
        if seen.failed:
            return seen
        found = [(buffer, prepared.expected, i) for i, (buffer, _) in enumerate(uploaded.outputs)]
        updated = prepared.updates
        found += [(uploaded.state[n], updated.expected, i) for i, n in enumerate(updated.names)]
        if backward:
            found += [(buffer, backward.gradients.expected, i) for i, buffer in enumerate(backward.written)]
        return replace(seen, errors=tuple(error for each in found for error in _errors(*each)))


def _errors(found: torch.Tensor, expected: Any, leaf: int) -> tuple[float, float]:
    """Returns mean and largest distance from float64, relative to the magnitude of each element; 0 where none is measured."""
    if not found.is_floating_point() or not isinstance(expected, Expected):
        return 0.0, 0.0
    exact = expected.exact[leaf].double()
    distance = (found.double() - exact).abs()
    finite = distance.isfinite()
    if not bool(finite.any()):
        return 0.0, 0.0
    exact = exact[finite].abs()  # next to 0, what cancels counts as it does for a thousandth of the mean
    relative = distance[finite] / (exact + 1e-3 * exact.mean() + 1e-30)
    return float(relative.mean()), float(relative.max())


def _read(found: Any) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Reads a worker's report of operations: what identifies each, and whether a constant is added."""
    if not isinstance(found, list):
        raise WorkerDied("its reply to `run` is not a valid report")
    if len(found) > MOST:
        raise Decision("inconclusive", "correctness", f"its kernels have more than {MOST} operations")
    for each in found:
        match each:
            case {"operation": [str(kernel), [_, *_] as places, str(name)], "added": bool(added)} if all(
                map(is_place, places)
            ):
                yield (kernel, tuple((line, start, end) for line, start, end in places), name), added
            case _:
                raise WorkerDied("its reply to `run` is not a valid report")


def find(judging: Judging, plans: Iterable[Plan]) -> None:
    """Notes the mutants that no probe tells from the candidate, and for how many there was no time: what is slow in Triton's
    interpreter may be right."""
    left = judging.worker.left
    found = Mutants(judging, max(left - judging.policy.mutant_seconds, left / 4))
    asked = {probe: plan.case.domain.grad for plan in plans for probe in probes(plan)}
    with judging.findings.durations.part("mutants"):
        try:
            if asked:
                found.examine(asked)
        except OutOfTime:
            lacking = len(found.known) - len(found.told) - len(found.survived)
            detail = f"there was no time to examine {lacking} of {len(found.known)} operations"
            judging.findings.checks.append(Check("operations that matter", True, None, None, detail))
    judging.findings.mutants[:] = found.survived


def probes(plan: Plan) -> Iterator[Probe]:
    """Yields the probes that tell mutants of a case, those first that are small."""
    sizes = tuple(plan.small.items())
    yield replace(plan.main[0], sizes=sizes)
    kinds = {(p.stress, p.state, p.values, p.incoming): replace(p, sizes=sizes) for p in plan.further}
    yield from kinds.values()
    others = (*plan.substitutes, *plan.probes)
    yield from (p for p in others if elements(plan.case.domain, dict(p.sizes)) <= plan.most)


def refuse(source: str, alive: Sequence[Mutant]) -> None:
    """Ends the judging where a mutant was told from the candidate by no probe.

    Raises:
        Decision: there is such a one.
    """
    if alive:
        broken = "; ".join(dict.fromkeys(mutant.describe(source) for mutant in alive[:3]))
        more = f", and {len(alive) - 3} more like this" if len(alive) > 3 else ""
        raise Decision("inconclusive", "correctness", f"{broken}{more}, at any probe")
