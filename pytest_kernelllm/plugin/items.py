"""Collectors and items: each candidate of each target is a test of its correctness and one of its speed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_kernelllm.core.errors import SessionError
from pytest_kernelllm.core.outcome import ADOPTED, Outcome, best
from pytest_kernelllm.core.records import Target
from pytest_kernelllm.discover.adoption import adoption_state
from pytest_kernelllm.discover.scan import Scan
from pytest_kernelllm.report.explain import explain
from pytest_kernelllm.session.session import Session


class TargetFile(pytest.File):
    """A file with targets."""

    def __init__(self, *, kernelllm: Session, found: Scan, **kwargs: Any) -> None:
        """``found`` is what the scan saw."""
        super().__init__(**kwargs)
        self.kernelllm = kernelllm
        self.found = found

    def collect(self) -> Iterator[pytest.Collector]:
        """One collector a target."""
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
        """Correctness and speed of the adopted kernel, and of every candidate unless that one is current."""
        indices = list(range(self.kernelllm.candidates_per_target))
        if self.target.kernel is not None:
            current = adoption_state(self.kernelllm.root, self.target) == "current"
            indices = [ADOPTED] if current else [ADOPTED, *indices]
        for kind in (CorrectnessItem, SpeedupItem):
            for index in indices:
                label = "adopted" if index == ADOPTED else str(index)
                yield kind.from_parent(
                    self,
                    name=f"{kind.label}[{label}]",
                    kernelllm=self.kernelllm,
                    target=self.target,
                    index=index,
                )
        if self.kernelllm.settings.require_kernels and self.target.kernel is None:
            yield VerifiedItem.from_parent(
                self, name="verified", kernelllm=self.kernelllm, target=self.target, index=0
            )


class CandidateItem(pytest.Item):
    """A test of one candidate."""

    label = ""

    def __init__(self, *, kernelllm: Session, target: Target, index: int, **kwargs: Any) -> None:
        """``index`` of the candidate, or ``ADOPTED``."""
        super().__init__(**kwargs)
        self.kernelllm = kernelllm
        self.target = target
        self.index = index
        self.outcome: Outcome | None = None

    def settle(self) -> Outcome:
        """What became of the candidate."""
        self.outcome = self.kernelllm.outcome(self.target, self.index)
        return self.outcome

    def fail_or_xfail(self, text: str) -> None:
        """A candidate that fails is expected to; an adopted kernel that fails is a failure."""
        if self.index == ADOPTED:
            pytest.fail(text, pytrace=False)
        pytest.xfail(text)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the marker stands."""
        return self.path, self.target.line - 1, f"{self.target.name}.{self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """One sentence for what a person can put right; a traceback only for our own mistakes."""
        if isinstance(excinfo.value, SessionError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    @pytest.hookimpl
    def runtest(self) -> None:
        """Judge, then say what was found."""
        raise NotImplementedError


class CorrectnessItem(CandidateItem):
    """``correctness[3]``: the candidate computes what the target computes."""

    label = "correctness"

    def runtest(self) -> None:
        """Pass if the candidate is right."""
        outcome = self.settle()
        verdict = outcome.verdict
        if verdict is None:
            if self.index == ADOPTED:
                pytest.fail(f"{self.target.id}: {outcome.reason}", pytrace=False)
            pytest.skip(outcome.reason)
        if verdict.verdict == "inconclusive":
            if self.index == ADOPTED:
                pytest.fail(explain(self.kernelllm.root, outcome, self.nodeid), pytrace=False)
            pytest.skip(f"could not be judged: {verdict.reason}")
        if not verdict.correct:
            self.fail_or_xfail(explain(self.kernelllm.root, outcome, self.nodeid))
        if self.index == ADOPTED and adoption_state(self.kernelllm.root, self.target) == "stale":
            pytest.fail(
                f"{self.target.id} has changed since {self.target.kernel} was adopted: the kernel is stale and the "
                "original runs. Take the new suggestion, or remove `kernel=`.",
                pytrace=False,
            )


class SpeedupItem(CandidateItem):
    """``speedup[3]``: the candidate is faster than the target, by enough."""

    label = "speedup"

    def runtest(self) -> None:
        """Pass if the speedup's interval clears the threshold."""
        outcome = self.settle()
        verdict = outcome.verdict
        if verdict is None or not verdict.correct:
            pytest.skip(outcome.reason or "not correct, so not timed")
        if not self.kernelllm.settings.timing:
            pytest.skip("timing is off")
        if not verdict.timing:
            pytest.skip("no GPU")
        if not verdict.accepted:
            self.fail_or_xfail(explain(self.kernelllm.root, outcome, self.nodeid))


class VerifiedItem(CandidateItem):
    """``verified`` (with ``--kernelllm-strict``): some candidate was accepted."""

    def runtest(self) -> None:
        """Pass if there is a kernel worth having."""
        every = range(self.kernelllm.candidates_per_target)
        outcomes = [self.kernelllm.outcome(self.target, index) for index in every]
        if best(outcomes) is None:
            reasons = [o.verdict.reason if o.verdict else o.reason for o in outcomes]
            listed = "\n".join(f"  candidate {i}: {reason}" for i, reason in enumerate(reasons))
            pytest.fail(
                f"{self.target.id} has no verified kernel (--kernelllm-strict):\n{listed}", pytrace=False
            )
