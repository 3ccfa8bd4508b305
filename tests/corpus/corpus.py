"""Judges entries of the corpus, and compares each verdict with the expected one."""

from __future__ import annotations

import atexit
import contextlib
import functools
import multiprocessing
import os
import queue
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from kernelllm_judge.candidate import judge_as_shipped
from kernelllm_judge.core.domains import interpretable, may_stay_open
from kernelllm_judge.core.kernel_module import format_supports
from kernelllm_judge.core.records import Candidate, Domain
from kernelllm_judge.environment import find_environment
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.rules.catalog import without as rules_without
from kernelllm_judge.static_check.static_check import find_violations
from kernelllm_judge.target.live import LiveTarget, load_target
from pytest_kernelllm.discover.scan import scan_file

from .entries import SUBJECTS, Entry, read_subjects

Device = Literal["cpu", "cuda"]

NO_STATIC_CHECK = frozenset({"static check"})

DEADLINE = {"cpu": 20.0, "cuda": 20.0}
"""Seconds a candidate's worker may live: entries that hang take all of it."""

SECRET = "HF_TOKEN"
"""Set to a made-up value while the corpus is judged: entries look for it."""


@dataclass(frozen=True)
class Outcome:
    """The verdict on one entry, judged without the ``disabled`` rules."""

    entry: Entry
    disabled: frozenset[str]
    status: str
    """``accepted``, ``rejected``, ``inconclusive``, or ``failed``: the judge itself did."""
    rule: str
    reason: str
    seconds: float
    stage: str = ""
    """The stage at which it was decided."""

    @property
    def caught(self) -> str:
        """The rule that rejected it, or its status; for printing."""
        return self.rule if self.status == "rejected" else self.status

    @property
    def expected(self) -> tuple[str, ...]:
        """The values that ``caught`` may have."""
        entry = self.entry
        if entry.kind != "cheat":
            return ("accepted",)
        if entry.refused_statically and "static check" not in self.disabled:
            return ("static check",)
        # Without the static check, entries that only it can catch may have any outcome.
        if {"decisions", "operations"} & {*entry.rules}:  # what no probe reaches is not accepted either
            return (*entry.rules, "inconclusive")
        return entry.rules or (self.caught,)

    @property
    def right(self) -> bool:
        """Whether the outcome is an expected one."""
        return self.caught in self.expected


def subject(name: str, device: Device) -> LiveTarget:
    """Loads a subject as a live target, on a GPU with its large sizes."""
    file = subject_file(name)
    [target] = scan_file(file, file.parent).targets
    live = load_target(file.parent, target)
    if device == "cpu":
        return live
    large: dict[str, int] = vars(sys.modules[live.cls.__module__])["LARGE"]
    makers = {case: functools.partial(make, **large) for case, make in live.options.inputs.items()}
    return load_target(file.parent, target, makers)


def subject_file(subject: str) -> Path:
    """Returns a subject's file; one that is an edit is written to a folder of this process."""
    file = SUBJECTS / f"{subject}.py"
    if not file.is_file():
        file = _folder() / file.name
        file.write_text(read_subjects()[subject], encoding="utf-8")
    return file


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="corpus-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def compose(entry: Entry, live: LiveTarget, *, on_gpu: bool) -> Candidate:
    """Returns the candidate: the entry's file, with ``SUPPORTS`` for all that is asked unless it has its own."""
    source = entry.text
    if "\nSUPPORTS = " not in source:
        claimed = [(_claimed(case.domain, source), case) for case in live.cases]
        domains = [domain if on_gpu else interpretable(domain, case) for domain, case in claimed]
        source = f"{source}\n\n{format_supports(domains)}"
    return Candidate(live.target.id, source, "corpus", note=entry.story)


def _claimed(domain: Domain, source: str) -> Domain:
    """Returns the domain, with floats left open that the source reads."""
    pinned = {
        name: value
        for name, value in domain.attributes.items()
        if not (may_stay_open(name, value) and f"self.{name}" in source)
    }
    return replace(domain, attributes=pinned)


class Subjects:
    """The targets that entries are for, each loaded once."""

    def __init__(self, device: Device) -> None:
        """Loads nothing yet."""
        self._device = device
        self._lives: dict[str, LiveTarget] = {}

    def live(self, entry: Entry) -> LiveTarget:
        """Returns an entry's target."""
        if entry.subject not in self._lives:
            self._lives[entry.subject] = subject(entry.subject, self._device)
        return self._lives[entry.subject]

    def compose(self, entry: Entry) -> Candidate:
        """Returns an entry's candidate, see ``compose``."""
        return compose(entry, self.live(entry), on_gpu=self._device == "cuda")


class CorpusJudge:
    """Judges entries on one device, several at once."""

    def __init__(self, device: Device, jobs: int = 2) -> None:
        """``jobs``: how many candidates are judged at the same time, each in a process of its own."""
        self.device = device
        self.jobs = jobs
        self.missing = probe_isolation(device).missing
        """What is missing here to isolate a candidate fully, in words."""
        self._subjects = Subjects(device)

    def judge(
        self,
        entries: Iterable[Entry],
        disabled: frozenset[str] = frozenset(),
        report: Callable[[Outcome], None] = lambda _: None,
    ) -> list[Outcome]:
        """Judge entries without the rules ``disabled``, in the order given.

        Args:
            entries: the entries; those that ``can_judge`` refuses are left out.
            disabled: rules switched off.
            report: called with each outcome as it comes.
        """
        chosen = [entry for entry in entries if self.can_judge(entry, disabled)]
        judged = {}
        for outcome in _judged(self.device, chosen, disabled, self.jobs):
            report(outcome)
            judged[outcome.entry] = outcome
        return [judged[entry] for entry in chosen]

    def judge_with_static_check(
        self,
        entries: Iterable[Entry],
        without: Iterable[Outcome],
        report: Callable[[Outcome], None] = lambda _: None,
    ) -> list[Outcome]:
        """Returns outcomes with every rule in force, reusing those without the static check.

        What the static check accepts is judged by the same rules as before, so only the rest is judged again.
        """
        judged = {outcome.entry: replace(outcome, disabled=frozenset()) for outcome in without}
        chosen = [entry for entry in entries if self.can_judge(entry)]
        refused = [e for e in chosen if e not in judged or find_violations(self._subjects.compose(e).source)]
        judged |= {outcome.entry: outcome for outcome in self.judge(refused, report=report)}
        return [judged[entry] for entry in chosen]

    def can_judge(self, entry: Entry, disabled: frozenset[str] = frozenset()) -> bool:
        """Whether an entry can run on this device and, without the static check, is isolated well enough."""
        held = "static check" not in disabled or not entry.escapes or not self.missing
        return entry.runs_on(self.device) and held


def _judged(
    device: Device, entries: Sequence[Entry], disabled: frozenset[str], jobs: int
) -> Iterator[Outcome]:
    """Yields outcomes as they come. Each process judges one entry after the other, as a judging process of the pool does."""
    context = multiprocessing.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    count = min(jobs, len(entries))
    for each in (*entries, *[None] * count):
        todo.put(each)
    processes = [context.Process(target=_work, args=(device, disabled, todo, done)) for _ in range(count)]
    with _secret():
        for process in processes:
            process.start()
    try:
        left = len(entries)
        while left:
            try:
                yield done.get(timeout=1)
                left -= 1
            except queue.Empty:
                if not any(process.is_alive() for process in processes) and done.empty():
                    raise RuntimeError(
                        f"the judging processes ended, {left} entries were not judged"
                    ) from None
    finally:
        todo.cancel_join_thread()  # nobody takes what is left
        for process in processes:
            if left:
                process.terminate()
            process.join()


def _work(device: Device, disabled: frozenset[str], todo: Any, done: Any) -> None:
    """Judges entries until there are no more."""
    subjects = Subjects(device)
    rules = rules_without(disabled)
    with Judge(find_environment(device), deadline=DEADLINE[device], rules=rules) as judge:
        for entry in iter(todo.get, None):
            done.put(_outcome(judge, subjects, entry, disabled))


def _outcome(judge: Judge, subjects: Subjects, entry: Entry, disabled: frozenset[str]) -> Outcome:
    start = time.perf_counter()
    try:
        timing = judge.environment.device == "cuda"
        criteria = Criteria(subjects.live(entry), timing=timing, min_speedup=0.0)
        candidate = subjects.compose(entry)
        if entry.kind == "cheat":
            verdict = judge.judge(candidate, criteria)
        else:
            _, verdict = judge_as_shipped(judge, candidate, criteria)
    except Exception as error:  # a judge must never raise, whatever a candidate does
        took = time.perf_counter() - start
        reason = f"the judge itself failed: {type(error).__name__}: {error}"
        return Outcome(entry, disabled, "failed", "", reason, took)
    took = time.perf_counter() - start
    return Outcome(entry, disabled, verdict.verdict, verdict.rule, verdict.reason, took, verdict.stage)


@contextlib.contextmanager
def _secret() -> Iterator[None]:
    before = os.environ.get(SECRET)
    os.environ[SECRET] = "made up for the corpus"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SECRET]
        else:
            os.environ[SECRET] = before
