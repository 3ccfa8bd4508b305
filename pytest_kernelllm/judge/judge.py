"""The judge: puts one candidate through screen, compiler, exam and clock, and says what it found."""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import torch

from pytest_kernelllm.core.records import Candidate, Check, Environment, Stage, Status, Verdict
from pytest_kernelllm.judge.benchmark.threshold import check_speed
from pytest_kernelllm.judge.benchmark.timer import Stopwatch
from pytest_kernelllm.judge.compiling import compiled_beside
from pytest_kernelllm.judge.handle import WorkerHandle
from pytest_kernelllm.judge.isolation.isolation import Isolation, probe_isolation
from pytest_kernelllm.judge.plans import Plan, make_plans
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.reference.outputs import Exam, ExamError, Subject
from pytest_kernelllm.judge.reference.probes import Probe, smaller
from pytest_kernelllm.judge.run.backward import asks_gradients, put_gradients
from pytest_kernelllm.judge.run.deeper import look_deeper
from pytest_kernelllm.judge.run.run import Decided, NoRoom, Proceedings, put
from pytest_kernelllm.judge.shared.buffers import Arena, Pool
from pytest_kernelllm.judge.static_check.static_check import screen
from pytest_kernelllm.judge.supervisor import ForkServer
from pytest_kernelllm.judge.workers import Workers

EXAMS = 3
"""Targets whose questions are kept for the next candidate."""

HALVINGS = 6
"""How often a case's elements are halved to have it timed on a GPU of too little memory, at most."""

PARTING = 10.0
"""Seconds that an ended worker may take to give its memory back."""


@dataclass(frozen=True)
class Brief:
    """What the judge is to decide about one target."""

    subject: Subject
    tolerance: float | None = None
    min_speedup: float = 1.05
    baseline: Literal["eager", "compile"] = "eager"
    """What ``min_speedup`` is measured against; eager where the module cannot be compiled."""
    nonfinite: bool = True
    """Whether NaN and infinities must come out as in the original."""
    timing: bool = True


class Judge:
    """Decides about candidates in one environment. Thread-safe; starts its processes on first use."""

    def __init__(
        self,
        environment: Environment,
        *,
        deadline: float = 60.0,
        gpu_uuid: str = "",
        isolation: Isolation | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Look at what the machine allows; no process is started yet.

        Args:
            environment: where verdicts will hold.
            deadline: seconds a candidate's worker may spend on its answers.
            gpu_uuid: names the GPU's lock.
            isolation: what holds its workers; by default the best that the machine allows.
            policy: other thresholds than the published ones, for tests of the judge itself.
        """
        self.environment = environment
        self.policy = policy or Policy()
        self.isolation = isolation or probe_isolation(environment.device)
        self.device = torch.device("cuda", 0) if environment.device == "cuda" else torch.device("cpu")
        self._seed = secrets.randbelow(1 << 30)
        self._lock = threading.Lock()
        self._exams: OrderedDict[int, tuple[Subject, Exam]] = OrderedDict()
        self._stopwatch = Stopwatch(gpu_uuid, self._seed)
        if self.device.type == "cuda":
            server = ForkServer("cuda", self.isolation)
            self._runners = Workers(server, self.device, deadline, Pool(self.device))
            self._servers = [server]
        else:
            server = ForkServer("interpret", self.isolation)
            self._runners = Workers(server, self.device, deadline * self.policy.interpreter_patience)
            compiler = ForkServer("compile", self.isolation, environment.arch)
            self._compilers = Workers(compiler, self.device, deadline)
            self._servers = [server, compiler]

    def __enter__(self) -> Judge:
        """Start warming up."""
        for server in self._servers:
            server.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """End all processes."""
        for server in self._servers:
            server.close()

    def judge(self, candidate: Candidate, brief: Brief) -> Verdict:
        """Decide about one candidate. Never raises for anything a candidate does.

        Raises:
            supervisor.ServerFailed: the judge's own processes cannot start.
        """
        start = time.perf_counter()
        found = Proceedings(self.policy.disabled)
        verdict: Status = "accepted"
        stage: Stage = "timing" if brief.timing and self.device.type == "cuda" else "correctness"
        reason = rule = ""
        try:
            self._proceed(candidate, brief, found)
        except Decided as decided:
            verdict, stage, reason, rule = decided.verdict, decided.stage, decided.reason, decided.rule
        except ExamError as error:
            verdict, stage, reason = "inconclusive", "correctness", f"{error}"
        except torch.cuda.OutOfMemoryError:
            verdict, stage = "inconclusive", "correctness"
            reason = "the judge ran out of GPU memory; free some or declare smaller `dims`"
        return Verdict(
            verdict=verdict,
            stage=stage,
            reason=reason,
            kernel_hash=candidate.kernel_hash,
            environment=self.environment,
            rule=rule,
            checks=tuple(found.checks),
            timing=tuple(found.timing),
            cases=tuple(found.cases),
            seconds=round(time.perf_counter() - start, 3),
            isolation=self.isolation.level,
        )

    def _proceed(self, candidate: Candidate, brief: Brief, found: Proceedings) -> None:
        findings = screen(candidate.source)
        detail = f"line {findings[0].line}: it {findings[0].reason}" if findings else ""
        found.check("screen", "screen", Check("screen", not findings, float(len(findings)), 0.0, detail))
        on_gpu = self.device.type == "cuda"
        plans = make_plans(
            candidate.source,
            brief.subject.cases,
            self.policy,
            on_gpu=on_gpu,
            seed=self._seed,
            nonfinite=brief.nonfinite,
        )
        exam = self._exam(brief)
        timed = brief.timing and on_gpu
        tight: list[Plan] = []
        with (
            self._compiled_beside(candidate, plans, exam, found) as compiles,
            self._runners.loaded(candidate.source) as (worker, arena),
        ):
            for plan in plans:
                if self._examine(worker, arena, plan.probes, exam, found, compiles):
                    found.cases.append(plan.case.name)
            if not found.cases:
                weak = next(c for c in found.checks if c.name == "telling inputs")
                raise Decided("inconclusive", "correctness", weak.detail)
            if timed:
                telling = [plan for plan in plans if plan.case.name in found.cases]
                tight = [p for p in telling if not self._time(worker, arena, p, p.sizes, exam, found)]
        for plan in tight:
            arena.closed.wait(PARTING)
            self._time_smaller(candidate, plan, exam, found)
        if timed:
            check_speed(found, brief.min_speedup, brief.baseline)

    def _exam(self, brief: Brief) -> Exam:
        with self._lock:
            kept = self._exams.get(id(brief.subject))
            if kept is None:
                exam = Exam(brief.subject, str(self.device), self.policy, brief.tolerance)
                kept = self._exams[id(brief.subject)] = (brief.subject, exam)
                while len(self._exams) > EXAMS:
                    self._exams.popitem(last=False)
            self._exams.move_to_end(id(brief.subject))
            return kept[1]

    def _compiled_beside(
        self, candidate: Candidate, plans: list[Plan], exam: Exam, found: Proceedings
    ) -> contextlib.AbstractContextManager[Callable[[], None]]:
        """Inside, kernels are compiled, where running them does not show that they can be."""
        if self.device.type == "cuda" or "compile" in self.policy.disabled:
            return contextlib.nullcontext(lambda: None)
        return compiled_beside(self._compilers, candidate.source, plans, exam, found)

    def _sharing(self) -> contextlib.AbstractContextManager[None]:
        """The GPU, shared with others that check but do not time."""
        if self.device.type == "cpu":
            return contextlib.nullcontext()
        return self._stopwatch.sharing()

    def _examine(
        self,
        worker: WorkerHandle,
        arena: Arena,
        probes: Sequence[Probe],
        exam: Exam,
        found: Proceedings,
        go_on: Callable[[], None],
    ) -> bool:
        """Put all questions of one case; whether the case counts: some question tells right from wrong.

        ``go_on`` is called before each, and may raise ``Decided``.
        """
        counted = False
        weak = ""
        first = None
        for number, probe in enumerate(probes):
            if probe.rule in self.policy.disabled and number:
                continue
            go_on()
            with self._sharing():
                if first and probe.rule not in ("values", "twin"):
                    look_deeper(worker, arena, *first, exam, found, random.Random(self._seed))
                    first = None
                question = exam.question(probe)
                reply = put(worker, arena, question, exam, found)
                # A decoy shows only at a question that tells right from wrong.
                if number == 0 or (first and first[0].impostor and not question.impostor):
                    first = question, reply
                if asks_gradients(exam, probe):
                    put_gradients(worker, arena, question, exam, found)
            if question.impostor is None:
                counted = True
            else:
                weak = f"{question.impostor} would pass as its output at {probe.describe()}"
        if first:
            with self._sharing():
                look_deeper(worker, arena, *first, exam, found, random.Random(self._seed))
        broken = (
            f"the inputs of case {probes[0].case} prove nothing: {weak}; give inputs that tell outputs apart"
        )
        found.checks.append(Check("telling inputs", counted, weak or None, None, "" if counted else broken))
        return counted

    def _time(
        self,
        worker: WorkerHandle,
        arena: Arena,
        plan: Plan,
        sizes: dict[str, int],
        exam: Exam,
        found: Proceedings,
    ) -> bool:
        """Time a case at these sizes; whether there was memory for it."""
        try:
            timing = self._stopwatch.time(worker, arena, plan.case.name, sizes, exam, found)
        except (NoRoom, torch.cuda.OutOfMemoryError):
            return False
        timing = replace(timing, note=plan.note(sizes))
        found.timing.append(timing)
        return True

    def _time_smaller(self, candidate: Candidate, plan: Plan, exam: Exam, found: Proceedings) -> None:
        """Time a case at the largest of its smaller sizes for which there is memory.

        Each try has a worker of its own, because a failed one may keep memory.

        Raises:
            Decided: there is none.
        """
        for sizes in islice(smaller(plan.case, plan.ranges, plan.sizes), HALVINGS):
            torch.cuda.empty_cache()
            with self._runners.loaded(candidate.source) as (worker, arena):
                done = self._time(worker, arena, plan, sizes, exam, found)
            if done:
                return
            arena.closed.wait(PARTING)
        reason = f"there was too little GPU memory to time case {plan.case.name}; free some, or declare `dims` that reach lower"
        raise Decided("inconclusive", "timing", reason)
