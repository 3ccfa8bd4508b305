"""Collectors and items: each candidate of each target is a test of its correctness and one of its speed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import ADOPTED, CandidateId, Target
from kernelllm_judge.standing import newly_refused
from pytest_kernelllm.core.outcome import Outcome, best
from pytest_kernelllm.discover.adoption import adoption_state, verified_under
from pytest_kernelllm.discover.scan import Scan
from pytest_kernelllm.report.explain import explain, noted, properties
from pytest_kernelllm.session.session import Session

MISTAKES = pytest.StashKey[dict[str, pytest.Item]]()
"""By the sentence about a mistake, the first test that found it."""


class TargetFile(pytest.File):
    """A file with targets."""

    def __init__(self, *, kernelllm: Session, found: Scan, **kwargs: Any) -> None:
        """``found`` is the result of the scan."""
        super().__init__(**kwargs)
        self.kernelllm = kernelllm
        self.found = found

    def collect(self) -> Iterator[pytest.Collector]:
        """Yields one collector for each target."""
        for problem in self.found.problems:
            self.warn(pytest.PytestCollectionWarning(str(problem)))
        for target in self.found.targets:
            yield TargetClass.from_parent(self, name=target.name, kernelllm=self.kernelllm, target=target)


class TargetClass(pytest.Collector):
    """A target."""

    def __init__(self, *, kernelllm: Session, target: Target, **kwargs: Any) -> None:
        """``target`` as the scan saw it."""
        super().__init__(**kwargs)
        self.kernelllm = kernelllm
        self.target = target

    def collect(self) -> Iterator[pytest.Item]:
        """Yields correctness and speed of the adopted kernel, and of every candidate unless that one is current."""
        ids = self.kernelllm.candidate_ids
        if self.target.kernel is not None:
            current = adoption_state(self.kernelllm.context.root, self.target) == "current"
            ids = [ADOPTED] if current else [ADOPTED, *ids]
        common = {"kernelllm": self.kernelllm, "target": self.target}
        for kind in (CorrectnessItem, SpeedupItem):
            for candidate in ids:
                yield kind.from_parent(self, name=f"{kind.label}[{candidate}]", candidate=candidate, **common)
        if self.kernelllm.context.settings.require_kernels and self.target.kernel is None:
            yield VerifiedItem.from_parent(self, name="verified", **common)


class TargetItem(pytest.Item):
    """A test about one target."""

    def __init__(
        self, *, kernelllm: Session, target: Target, name: str, parent: pytest.Collector, **kwargs: Any
    ) -> None:
        """``target`` as the scan saw it."""
        # The id as a text, which pytest takes apart as it does what it reads from its cache (``--lf``).
        super().__init__(name, parent, nodeid=f"{parent.nodeid}::{name}", **kwargs)
        self.kernelllm = kernelllm
        self.target = target

    def reportinfo(self) -> tuple[Path, int, str]:
        """Returns where the marker stands."""
        return self.path, self.target.line - 1, f"{self.target.name}.{self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Returns one sentence for what a person can resolve; a traceback only for our own mistakes."""
        if isinstance(excinfo.value, SessionError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def runtest(self) -> None:
        """Judges, then passes, fails, skips or xfails. A mistake that concerns several tests fails one."""
        try:
            self.judge()
        except SessionError as error:
            first = self.session.stash.setdefault(MISTAKES, {}).setdefault(str(error), self)
            if first is not self:
                here = first.parent is self.parent
                self.skip(f"not tried, for the reason that {first.name if here else first.nodeid} failed")
            raise

    def judge(self) -> None:
        """Judges, then passes, fails, skips or xfails."""
        raise NotImplementedError

    def skip(self, reason: str) -> NoReturn:
        """Skips the test. pytest's list of skipped tests names the marker's line, and the reason names the target."""
        raise pytest.skip.Exception(f"{self.target.name}: {reason}", _use_item_location=True)


class CandidateItem(TargetItem):
    """A test of one candidate."""

    label = ""

    def __init__(self, *, candidate: CandidateId, **kwargs: Any) -> None:
        """``candidate`` is one of ``Session.candidate_ids``, or ``ADOPTED``."""
        super().__init__(**kwargs)
        self.candidate = candidate
        self.outcome: Outcome | None = None

    def judged(self) -> Outcome:
        """Returns what became of the candidate."""
        self.outcome = self.kernelllm.outcome(self.target, self.candidate)
        self.user_properties += properties(self.outcome)
        return self.outcome

    def explained(self, outcome: Outcome) -> str:
        """Says why the candidate did not pass, and how to see it again."""
        return explain(self.kernelllm.context.root, outcome, self.nodeid)

    def fail_or_xfail(self, outcome: Outcome) -> None:
        """A candidate that fails is expected to; an adopted kernel that fails is a failure.

        One that only rules refuse which are newer than its verification, and that gives no wrong result, is warned of.
        """
        text = self.explained(outcome)
        if self.candidate != ADOPTED:
            pytest.xfail(text)
        assert outcome.verdict is not None and outcome.candidate is not None
        why = newly_refused(outcome.verdict, verified_under(outcome.candidate.source))
        if not why or self.kernelllm.context.settings.require_kernels:
            pytest.fail(text, pytrace=False)
        refused = f"{self.target.id}: {self.target.kernel} is refused, but gives no wrong result: {why}"
        advice = "Take a new suggestion; with --kernelllm-strict this test fails."
        self.warn(pytest.PytestWarning(f"{refused} ({outcome.verdict.reason}). {advice}"))

    def fail_or_skip(self, adopted: str, otherwise: str) -> None:
        """An adopted kernel that cannot be judged is a failure, any other candidate is skipped."""
        if self.candidate == ADOPTED:
            pytest.fail(adopted, pytrace=False)
        self.skip(otherwise)


class CorrectnessItem(CandidateItem):
    """``correctness[inductor-3]``: the candidate computes what the target computes."""

    label = "correctness"

    def judge(self) -> None:
        """Passes if the candidate is right."""
        outcome = self.judged()
        verdict = outcome.verdict
        if verdict is None:
            self.fail_or_skip(f"{self.target.id}: {outcome.reason}", outcome.reason)
        elif verdict.verdict == "inconclusive":
            self.fail_or_skip(self.explained(outcome), f"could not be judged: {verdict.reason}")
        elif not verdict.correct:
            self.fail_or_xfail(outcome)
        if self.candidate == ADOPTED and adoption_state(self.kernelllm.context.root, self.target) == "stale":
            pytest.fail(
                f"{self.target.id} has changed since {self.target.kernel} was adopted: the kernel is stale and the "
                "original runs. Take the new suggestion, or remove `kernel=`.",
                pytrace=False,
            )


class SpeedupItem(CandidateItem):
    """``speedup[inductor-3]``: the candidate is faster than the target, by enough; an adopted one, not slower than recorded."""

    label = "speedup"

    def judge(self) -> None:
        """Passes if the speedup's interval clears the threshold, and an adopted kernel is about as fast as recorded."""
        outcome = self.judged()
        verdict = outcome.verdict
        if verdict is None or not verdict.correct:
            self.skip(outcome.reason or "not correct, so not timed")
        if not self.kernelllm.context.settings.timing:
            self.skip(noted(outcome) or "timing is off")
        if not verdict.timing:
            self.skip(noted(outcome) or "no GPU")
        if not verdict.accepted or (outcome.history and outcome.history.slower):
            self.fail_or_xfail(outcome)


class VerifiedItem(TargetItem):
    """``verified`` (with ``--kernelllm-strict``): some candidate was accepted."""

    def judge(self) -> None:
        """Passes if there is a kernel to suggest."""
        outcomes = [self.kernelllm.outcome(self.target, each) for each in self.kernelllm.candidate_ids]
        if best(outcomes) is None:
            listed = "\n".join(f"  {outcome.id}: {outcome.why}" for outcome in outcomes)
            pytest.fail(
                f"{self.target.id} has no verified kernel (--kernelllm-strict):\n{listed}", pytrace=False
            )
