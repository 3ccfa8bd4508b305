"""The third stage: looks up or computes the verdicts of candidates."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import (
    Candidate,
    Environment,
    KernelRecord,
    Target,
    Terms,
    Verdict,
)
from kernelllm_judge.environment import Gpu, find_gpu
from kernelllm_judge.isolation.isolation import Isolation, probe_isolation
from kernelllm_judge.standing import standing
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.overrides import Overrides
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.pool.engine import judging_environment
from pytest_kernelllm.pool.jobs import PoolFailed
from pytest_kernelllm.session.memo import Memo
from pytest_kernelllm.session.processes import TargetProcesses
from pytest_kernelllm.session.render import for_target
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.verdicts import VerdictKey


class JudgeStage:
    """Verdicts by target and candidate. Nothing that the store holds is judged again, as long as it stands."""

    def __init__(
        self,
        root: Path,
        settings: Settings,
        store: Store,
        processes: TargetProcesses,
        overrides: Callable[[Target], Overrides],
        progress: Callable[[str], None],
    ) -> None:
        """Starts nothing yet.

        Args:
            root: project root.
            settings: how to judge.
            store: where verdicts are kept.
            processes: judge the candidates.
            overrides: what a conftest says about a target.
            progress: called with a few words about what is being done.
        """
        self._root = root
        self._settings = settings
        self._store = store
        self._processes = processes
        self._overrides = overrides
        self._progress = progress
        self._memo = Memo(
            store.verdicts,
            answers=self._answers,
            lasts=lambda record: record.verdict.verdict != "inconclusive",
        )

    @cached_property
    def environment(self) -> Environment:
        """Where verdicts of this session hold.

        Raises:
            SessionError: the GPU is to be a cluster's, and there is none.
        """
        try:
            return judging_environment(self._settings)
        except PoolFailed as error:
            raise SessionError(str(error)) from None

    @cached_property
    def gpu(self) -> Gpu | None:
        """The GPU in use."""
        return find_gpu() if self.environment.device == "cuda" else None

    @cached_property
    def isolation(self) -> Isolation:
        """What will hold the candidates' processes.

        Raises:
            IsolationError: the settings ask for more than this machine can give.
        """
        return probe_isolation(self.environment.device, self._settings.isolation)

    def known(self, target: Target, candidate: Candidate) -> Verdict | None:
        """Returns the verdict, if it need not be computed."""
        key = self._key(target, candidate)
        record = self._memo.known(key)
        if record and self._has_moved(record, target):
            now = for_target(record.candidate, target)
            record = self._memo.keep(key, replace(record, target=target.id, candidate=now))
        return record.verdict if record else None

    def verdicts(self, target: Target, candidates: Sequence[Candidate]) -> Iterator[Verdict]:
        """Yields a verdict on each candidate, in order; several are judged side by side.

        Raises:
            SessionError: the target cannot be imported, built or called, or the judge cannot start.
        """
        with ThreadPoolExecutor(min(len(candidates), 2 * self._processes.slots)) as threads:
            records = threads.map(lambda candidate: self._record(target, candidate), candidates)
            for number, record in enumerate(records, 1):
                self._progress(f"{target.name}: judged {number} of {counted(len(candidates), 'candidate')}")
                yield record.verdict

    # ------------------------------------------------------------------ one candidate

    def _record(self, target: Target, candidate: Candidate) -> KernelRecord:
        key = self._key(target, candidate)
        alone = self._store.lock(f"judge {key.source_hash} {key.kernel_hash} {key.environment.key}")
        return self._memo.get(key, lambda: self._judged(target, candidate, key.terms), alone)

    def _has_moved(self, record: KernelRecord, target: Target) -> bool:
        """Whether a verdict names a file that is gone, for which the target's own has come."""
        path = record.target.partition("::")[0]
        return path != target.path and not (self._root / path).exists()

    def _judged(self, target: Target, candidate: Candidate, terms: Terms) -> KernelRecord:
        verdict = self._processes.judge(target, candidate)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        alone = replace(candidate, others=())
        return KernelRecord(target.id, target.source_hash, alone, verdict, now, terms)

    def _key(self, target: Target, candidate: Candidate) -> VerdictKey:
        return VerdictKey(target.source_hash, candidate.kernel_hash, self.environment, self._terms(target))

    def _terms(self, target: Target) -> Terms:
        stated = self._overrides(target)
        terms = Terms(stated.tolerance, stated.fingerprint)
        if self.environment.device == "cpu":
            return terms  # where nothing is timed, and speed decides nothing
        return replace(terms, min_speedup=self._settings.min_speedup, baseline=self._settings.baseline)

    def _answers(self, record: KernelRecord) -> bool:
        """Whether a stored verdict answers what this run asks: it stands, and one on a correct kernel may lack its speed."""
        if not standing(record.verdict).stands:
            return False
        timed = self._settings.timing and self.environment.device == "cuda"
        return bool(record.verdict.timing) or not (timed and record.verdict.correct)
