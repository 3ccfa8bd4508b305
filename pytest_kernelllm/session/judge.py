"""The third stage: looks up or computes the verdicts of candidates."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_kernelllm.config.settings import Settings, size_in_bytes
from pytest_kernelllm.core.errors import SessionError
from pytest_kernelllm.core.overrides import Overrides
from pytest_kernelllm.core.records import (
    ADOPTED,
    Candidate,
    Environment,
    KernelRecord,
    Target,
    Terms,
    Verdict,
)
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.judge.environment import Gpu, find_environment, find_gpu
from pytest_kernelllm.judge.isolation.isolation import Isolation, probe_isolation
from pytest_kernelllm.session.memo import Memo
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.verdicts import VerdictKey

if TYPE_CHECKING:
    from pytest_kernelllm.discover.live import LiveTarget
    from pytest_kernelllm.judge.judge import Criteria, Judge


class JudgeStage:
    """Verdicts by target and candidate. Starts a judge when one is needed; close it to end the judge's processes."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        live: Callable[[Target], LiveTarget],
        overrides: Callable[[Target], Overrides],
        progress: Callable[[str], None],
    ) -> None:
        """Starts nothing yet.

        Args:
            settings: how to judge.
            store: where verdicts are kept.
            live: imports a target.
            overrides: what a conftest says about a target.
            progress: called with a few words about what is being done.
        """
        self._settings = settings
        self._store = store
        self._live = live
        self._overrides = overrides
        self._progress = progress
        self._memo = Memo(
            store.verdicts,
            answers=self._answers,
            lasts=lambda record: record.verdict.verdict != "inconclusive",
        )
        self._open = ExitStack()

    @cached_property
    def environment(self) -> Environment:
        """Where verdicts of this session hold."""
        return find_environment(self._settings.device, self._settings.arch)

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
        record = self._memo.known(self._key(target, candidate))
        return record.verdict if record else None

    def verdicts(self, target: Target, candidates: Sequence[Candidate]) -> Iterator[Verdict]:
        """Yields a verdict on each candidate, in order; several are judged side by side.

        Raises:
            SessionError: the target cannot be imported, built or called, or the judge cannot start.
        """
        live, judge = self._live(target), self._judge
        workers = self._settings.workers or min(len(os.sched_getaffinity(0)), 8)
        with ThreadPoolExecutor(workers) as pool:
            records = pool.map(lambda candidate: self._record(judge, live, candidate), candidates)
            for number, record in enumerate(records, 1):
                self._progress(f"{target.name}: judged {number} of {counted(len(candidates), 'candidate')}")
                yield record.verdict

    def close(self) -> None:
        """Ends the judge's processes."""
        self._open.close()

    # ------------------------------------------------------------------ one candidate

    def _record(self, judge: Judge, live: LiveTarget, candidate: Candidate) -> KernelRecord:
        key = self._key(live.target, candidate)
        alone = self._store.lock(f"judge {key.kernel_hash} {key.environment.key}")
        return self._memo.get(key, lambda: self._judged(judge, live, candidate, key.terms), alone)

    def _judged(self, judge: Judge, live: LiveTarget, candidate: Candidate, terms: Terms) -> KernelRecord:
        from pytest_kernelllm.generate.render.errors import unexpected
        from pytest_kernelllm.judge.launching import ServerFailed

        try:
            verdict = judge.judge(candidate, self._criteria(live, candidate))
        except ServerFailed as error:
            raise SessionError(str(error)) from None
        except (Exception, SystemExit) as error:  # costs one verdict, not the run
            reason = unexpected("The judge", "candidate", error)
            verdict = Verdict("inconclusive", "correctness", reason, candidate.kernel_hash, self.environment)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return KernelRecord(live.target.id, live.target.source_hash, candidate, verdict, now, terms)

    def _criteria(self, live: LiveTarget, candidate: Candidate) -> Criteria:
        from pytest_kernelllm.judge.judge import Criteria

        stated, settings, options = self._overrides(live.target), self._settings, live.options
        return Criteria(
            live,
            tolerance=options.tolerance if stated.tolerance is None else stated.tolerance,
            min_speedup=settings.min_speedup if options.min_speedup is None else options.min_speedup,
            baseline=settings.baseline,
            nonfinite=options.nonfinite,
            timing=settings.timing,
            adopted=candidate.generator == ADOPTED.generator,
        )

    def _key(self, target: Target, candidate: Candidate) -> VerdictKey:
        return VerdictKey(target.source_hash, candidate.kernel_hash, self.environment, self._terms(target))

    def _terms(self, target: Target) -> Terms:
        stated = self._overrides(target)
        terms = Terms(stated.tolerance, stated.fingerprint)
        if self.environment.device == "cpu":
            return terms  # where nothing is timed, and speed decides nothing
        return replace(terms, min_speedup=self._settings.min_speedup, baseline=self._settings.baseline)

    def _answers(self, record: KernelRecord) -> bool:
        """Whether a stored verdict answers what this run asks: one on a correct kernel may lack its speed."""
        timed = self._settings.timing and self.environment.device == "cuda"
        return bool(record.verdict.timing) or not (timed and record.verdict.correct)

    @cached_property
    def _judge(self) -> Judge:
        self._progress("starting the judge")
        from pytest_kernelllm.judge.judge import Judge

        deadline, uuid = self._settings.deadline, self.gpu.uuid if self.gpu else ""
        return self._open.enter_context(
            Judge(
                self.environment,
                deadline=deadline,
                gpu_uuid=uuid,
                isolation=self.isolation,
                gpu_memory=size_in_bytes(self._settings.gpu_memory),
            )
        )
