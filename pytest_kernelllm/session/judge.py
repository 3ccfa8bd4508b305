"""Verdicts: what the store knows, and what is judged now and stored."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.errors import SessionError
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.overrides import Overrides
from pytest_kernelllm.core.records import Candidate, Environment, KernelRecord, Target
from pytest_kernelllm.judge.environment import Gpu, find_environment, find_gpu
from pytest_kernelllm.judge.isolation.isolation import Isolation, probe_isolation
from pytest_kernelllm.store.local import Store

if TYPE_CHECKING:
    from pytest_kernelllm.discover.live import LiveTarget
    from pytest_kernelllm.judge.judge import Judge


class Verdicts:
    """Of a session's candidates. Starts a judge when one is needed; close it to end the judge's processes."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        live: Callable[[Target], LiveTarget],
        overrides: Callable[[Target], Overrides],
        *,
        free_gpu: Callable[[], None],
        progress: Callable[[str], None],
    ) -> None:
        """Nothing is started yet.

        Args:
            settings: how to judge.
            store: what is known, and where verdicts go.
            live: a target's class with its cases.
            overrides: what a conftest says of a target.
            free_gpu: called before anything is timed on the GPU, which nobody else may use then.
            progress: told in a few words what is being done.
        """
        self._settings = settings
        self._store = store
        self._live = live
        self._overrides = overrides
        self._free_gpu = free_gpu
        self._progress = progress
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

    def of(self, target: Target, drafts: Sequence[Outcome]) -> list[Outcome]:
        """Verdicts for all drafts; several candidates side by side where there are several."""
        settled: dict[int, Outcome] = {}
        unknown: list[Outcome] = []
        for draft in drafts:
            if draft.candidate is None:
                settled[draft.index] = draft
            elif (record := self._known(target, draft.candidate)) is not None:
                settled[draft.index] = replace(draft, verdict=record.verdict, cached=True)
            else:
                unknown.append(draft)
        if unknown:
            if self.environment.device == "cuda":
                self._free_gpu()
            live = self._live(target)
            judge = self._judge
            workers = self._settings.workers or min(len(os.sched_getaffinity(0)), 8)
            with ThreadPoolExecutor(workers) as pool:
                for number, outcome in enumerate(
                    pool.map(lambda draft: self._judged(judge, target, live, draft), unknown), 1
                ):
                    settled[outcome.index] = outcome
                    self._progress(f"{target.name}: judged {number} of {len(unknown)} candidates")
        return [settled[draft.index] for draft in drafts]

    def _judged(self, judge: Judge, target: Target, live: LiveTarget, draft: Outcome) -> Outcome:
        from pytest_kernelllm.judge.judge import Criteria
        from pytest_kernelllm.judge.supervisor import ServerFailed

        assert draft.candidate is not None
        override = self._overrides(target)
        options = live.options
        criteria = Criteria(
            live,
            tolerance=override.tolerance if override.tolerance is not None else options.tolerance,
            min_speedup=self._settings.min_speedup if options.min_speedup is None else options.min_speedup,
            baseline=self._settings.baseline,
            nonfinite=options.nonfinite,
            timing=self._settings.timing,
        )
        with self._store.lock(f"judge {draft.candidate.kernel_hash} {self.environment.key}"):
            if (record := self._known(target, draft.candidate)) is not None:
                return replace(draft, verdict=record.verdict, cached=True)
            try:
                verdict = judge.judge(draft.candidate, criteria)
            except ServerFailed as error:
                raise SessionError(str(error)) from None
            verdict = replace(verdict, environment=self._environment_for(target))
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            if verdict.verdict != "inconclusive":
                self._store.add_verdict(
                    KernelRecord(target.id, target.source_hash, draft.candidate, verdict, now)
                )
        return replace(draft, verdict=verdict)

    def _known(self, target: Target, candidate: Candidate) -> KernelRecord | None:
        """The stored verdict, if it answers what this run asks."""
        record = self._store.verdict(candidate.kernel_hash, target.source_hash, self._environment_for(target))
        if record is None:
            return None
        wants_timing = self._settings.timing and self.environment.device == "cuda"
        if record.verdict.correct and wants_timing and not record.verdict.timing:
            return None
        return record

    def _environment_for(self, target: Target) -> Environment:
        """The environment, with the rules by the name they have for this target."""
        policy = self.environment.policy + self._overrides(target).key
        if self.environment.device == "cuda" and self._settings.min_speedup != Settings.min_speedup:
            policy += f" {self._settings.min_speedup}x"
        if self.environment.device == "cuda" and self._settings.baseline != Settings.baseline:
            policy += f" over {self._settings.baseline}"
        return replace(self.environment, policy=policy)

    @cached_property
    def _judge(self) -> Judge:
        self._progress("starting the judge")
        from pytest_kernelllm.judge.judge import Judge

        deadline, uuid = self._settings.deadline, self.gpu.uuid if self.gpu else ""
        return self._open.enter_context(
            Judge(self.environment, deadline=deadline, gpu_uuid=uuid, isolation=self.isolation)
        )

    def close(self) -> None:
        """End the judge's processes."""
        self._open.close()
