"""Decides about drafts: looks verdicts up, has the others judged, and compares adopted kernels with recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kernelllm_judge.core.records import ADOPTED, Candidate, Target
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.session.history import Histories
from pytest_kernelllm.session.judge import JudgeStage
from pytest_kernelllm.session.repair import Turns


class DecideStage:
    """Outcomes of drafts. Thread-safe."""

    def __init__(
        self,
        judging: JudgeStage,
        history: Histories,
        turns: Turns,
        leave_gpus: Callable[[], None],
    ) -> None:
        """Judges nothing yet.

        Args:
            judging: looks up and computes verdicts.
            history: the recorded runs.
            turns: holds writing up.
            leave_gpus: has language models leave the GPUs.
        """
        self._judging = judging
        self._history = history
        self._turns = turns
        self._leave_gpus = leave_gpus

    def outcomes(self, target: Target, drafts: Sequence[Outcome]) -> Iterator[Outcome]:
        """Yields what became of drafts, in any order.

        Raises:
            SessionError: the target cannot be imported, built or called, or nothing can be judged here.
        """
        with self._turns.judging():
            for outcome in self._first(target, drafts):
                yield self._with_history(self._best_match(target, outcome))

    def _best_match(self, target: Target, first: Outcome) -> Outcome:
        """Tries the completion's other candidates where the likeliest is wrong; returns the one that is right."""
        outcome = first
        while outcome.rejected and outcome.candidate and outcome.candidate.next:
            draft = replace(first, candidate=outcome.candidate.next, verdict=None, cached=False)
            [outcome] = self._first(target, [draft])
        return first if outcome.rejected else outcome

    def _first(self, target: Target, drafts: Sequence[Outcome]) -> Iterator[Outcome]:
        """Judges the likeliest candidate of each completion."""
        unknown: list[tuple[Outcome, Candidate]] = []
        for draft in drafts:
            if draft.candidate is None:
                yield draft
            elif (verdict := self._judging.known(target, draft.candidate)) is not None:
                yield replace(draft, verdict=verdict, cached=True)
            else:
                unknown.append((draft, draft.candidate))
        if not unknown:
            return
        if self._judging.environment.device == "cuda":
            self._leave_gpus()  # nobody else may use a GPU on which something is timed
        verdicts = self._judging.verdicts(target, [candidate for _, candidate in unknown])
        for (draft, _), verdict in zip(unknown, verdicts, strict=True):
            yield replace(draft, verdict=verdict)

    def _with_history(self, outcome: Outcome) -> Outcome:
        if outcome.id != ADOPTED or outcome.verdict is None:
            return outcome
        return replace(outcome, history=self._history.of(outcome.target, outcome.verdict))
