"""Looks up or computes the verdicts of drafts."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field, replace

from kernelllm_judge.core.records import Candidate, CandidateId, KernelRecord, Target, Terms, Verdict
from kernelllm_judge.core.spans import JUDGED
from kernelllm_judge.standing import standing
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.session.context import Context
from pytest_kernelllm.session.drafts import for_target
from pytest_kernelllm.session.processes import TargetProcesses
from pytest_kernelllm.store.verdicts import VerdictKey


@dataclass(frozen=True)
class JudgeStage:
    """Outcomes of drafts. Nothing that the store holds is judged again, as long as it stands. Thread-safe."""

    context: Context
    processes: TargetProcesses
    settled: dict[tuple[str, CandidateId], Outcome] = field(default_factory=dict)
    """What became of the candidates so far, by ``Target.id`` and name."""

    def looked_up(self, target: Target, draft: Outcome) -> Outcome | None:
        """Returns what became of a draft; None if it has to be judged."""
        if draft.candidate is None:
            return draft
        verdict = self._known(target, draft.candidate)
        return None if verdict is None else self._settle(replace(draft, verdict=verdict, cached=True))

    def judged(self, target: Target, draft: Outcome) -> Outcome:
        """Returns what became of a draft that nothing is known of."""
        assert draft.candidate is not None
        with self.context.recorder.span(JUDGED, target.id):
            verdict = self._record(target, draft.candidate).verdict
        self.context.progress(f"{target.name}: judged {draft.id}")
        return self._settle(replace(draft, verdict=verdict))

    # ------------------------------------------------------------------ one candidate

    def _known(self, target: Target, candidate: Candidate) -> Verdict | None:
        verdicts, key = self.context.known.verdicts, self._key(target, candidate)
        record = verdicts.known(key, self._answers)
        if record and self._has_moved(record, target):
            now = for_target(record.candidate, target)
            record = verdicts.keep(key, replace(record, target=target.id, candidate=now))
        return record.verdict if record else None

    def _settle(self, outcome: Outcome) -> Outcome:
        self.settled[outcome.target.id, outcome.id] = outcome
        return outcome

    def _record(self, target: Target, candidate: Candidate) -> KernelRecord:
        verdicts, key = self.context.known.verdicts, self._key(target, candidate)
        with self.context.store.lock(f"judge {key.source_hash} {key.kernel_hash} {key.environment.key}"):
            known = verdicts.known(key, self._answers)  # whoever held the lock before may have judged it
            return known or verdicts.keep(key, self._judged(target, candidate, key.terms))

    def _has_moved(self, record: KernelRecord, target: Target) -> bool:
        """Whether a verdict names a file that is gone, for which the target's own has come."""
        path = record.target.partition("::")[0]
        return path != target.path and not (self.context.root / path).exists()

    def _judged(self, target: Target, candidate: Candidate, terms: Terms) -> KernelRecord:
        verdict = self.processes.judge(target, candidate)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        alone = replace(candidate, others=())
        return KernelRecord(target.id, target.source_hash, alone, verdict, now, terms)

    def _key(self, target: Target, candidate: Candidate) -> VerdictKey:
        return VerdictKey(
            target.source_hash, candidate.kernel_hash, self.context.environment, self._terms(target)
        )

    def _terms(self, target: Target) -> Terms:
        stated, settings = self.context.overrides(target), self.context.settings
        terms = Terms(stated.tolerance, stated.fingerprint)
        if not self.context.on_gpu:
            return terms  # where nothing is timed, and speed decides nothing
        return replace(terms, min_speedup=settings.min_speedup, baseline=settings.baseline)

    def _answers(self, record: KernelRecord) -> bool:
        """Whether a stored verdict answers what this run asks: it stands, and one on a correct kernel may lack its speed."""
        if not standing(record.verdict).stands:
            return False
        return bool(record.verdict.timing) or not (self.context.times and record.verdict.correct)
