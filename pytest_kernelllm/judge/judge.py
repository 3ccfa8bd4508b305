"""The judge: puts one candidate through screen, compiler, exam and clock, and says what it found."""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from pytest_kernelllm.judge.exam.exam import Exam, ExamError, Subject
from pytest_kernelllm.judge.exam.probes import Limits, Probe, covers
from pytest_kernelllm.judge.exam.probes import plan as make_probes
from pytest_kernelllm.judge.gpu_lock import hold_gpu
from pytest_kernelllm.judge.isolation.isolation import Isolation, probe_isolation
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.race.race import Runner, race
from pytest_kernelllm.judge.race.roofline import Roofline, measure_roofline
from pytest_kernelllm.judge.screen.screen import screen
from pytest_kernelllm.judge.supervisor import ForkServer, WorkerDied, WorkerHandle
from pytest_kernelllm.judge.trial.backwards import asks_gradients, put_gradients
from pytest_kernelllm.judge.trial.deeper import check_device_time, look_deeper
from pytest_kernelllm.judge.trial.trial import Decided, Proceedings, pose, put, said
from pytest_kernelllm.judge.worker.clock import Clock
from pytest_kernelllm.judge.worker.slabs import Arena, Pool
from pytest_kernelllm.kernel_module import KernelModuleError, read_supports
from pytest_kernelllm.records import Candidate, Case, Check, Environment, Stage, Status, Verdict

EXAMS = 3
"""Targets whose questions are kept for the next candidate."""


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


@dataclass(frozen=True)
class Plan:
    """What is asked about one case of the target."""

    case: Case
    probes: tuple[Probe, ...]
    sizes: dict[str, int]
    """At which it is timed: the case's own, as far as the candidate supports them."""


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
        self.deadline = deadline
        self.policy = policy or Policy()
        self.isolation = isolation or probe_isolation(environment.device)
        self.device = torch.device("cuda", 0) if environment.device == "cuda" else torch.device("cpu")
        self._gpu_uuid = gpu_uuid
        self._seed = secrets.randbelow(1 << 30)
        self._lock = threading.Lock()
        self._exams: OrderedDict[int, tuple[Subject, Exam]] = OrderedDict()
        self._roofline: Roofline | None = None
        self._clock = Clock()
        self._pool = Pool(self.device) if self.device.type == "cuda" else None
        if self.device.type == "cuda":
            self._runner = ForkServer("cuda", self.isolation)
            self._servers = [self._runner]
        else:
            self._runner = ForkServer("interpret", self.isolation)
            self._compiler = ForkServer("compile", self.isolation, environment.arch)
            self._servers = [self._runner, self._compiler]

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
        plans = self._plans(candidate, brief)
        exam = self._exam(brief)
        if self.device.type == "cpu" and "compile" not in self.policy.disabled:
            self._compile(candidate, plans, exam, found)
        timed = brief.timing and self.device.type == "cuda"
        with self._worker(self._runner) as (worker, arena):
            if self.device.type == "cuda":
                # Here, where nobody holds the GPU for it: drivers make one after the other, for all GPUs of a machine.
                make_context(worker)
            self._load(worker, candidate)
            for plan in plans:
                if self._examine(worker, arena, plan.probes, exam, found):
                    found.cases.append(plan.case.name)
            if not found.cases:
                weak = next(c for c in found.checks if c.name == "telling inputs")
                raise Decided("inconclusive", "correctness", weak.detail)
            if timed:
                for plan in plans:
                    if plan.case.name in found.cases:
                        self._time(worker, arena, plan, exam, found)
        if timed:
            _compare_speed(brief, found)

    def _plans(self, candidate: Candidate, brief: Brief) -> list[Plan]:
        """The plan for each case that the candidate says it supports."""
        try:
            supports = read_supports(candidate.source)
        except KernelModuleError as error:
            raise Decided("rejected", "screen", str(error), "supports") from None
        policy = self.policy
        on_gpu = self.device.type == "cuda"
        limits = (
            Limits(policy.gpu_elements, policy.gpu_longest)
            if on_gpu
            else Limits(policy.cpu_elements, policy.cpu_longest)
        )
        plans, refusals = [], []
        for case in brief.subject.cases:
            for support in supports:
                ranges = covers(support, case)
                if isinstance(ranges, str):
                    refusals.append(f"{case.name}: {ranges}")
                    continue
                floats = (k for k, v in case.domain.attributes.items() if isinstance(v, float))
                nudged = tuple(k for k in floats if k not in support.attributes)
                probes = make_probes(case, ranges, nudged, policy, limits, self._seed, brief.nonfinite)
                sizes = {k: min(max(v, ranges[k][0]), ranges[k][1]) for k, v in case.sizes.items()}
                plans.append(Plan(case, tuple(probes), sizes))
                break
        if not plans:
            reason = "; ".join(refusals) or "SUPPORTS is empty"
            reason = f"it supports none of the target's cases ({reason})"
            raise Decided("rejected", "screen", reason, "supports")
        return plans

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

    @contextlib.contextmanager
    def _worker(self, server: ForkServer) -> Iterator[tuple[WorkerHandle, Arena]]:
        """A worker with an arena; its end, however it comes, is a rejection."""
        arena = Arena(self.device, self._pool)
        try:
            patience = self.policy.interpreter_patience if server.mode == "interpret" else 1.0
            with server.worker(self.deadline * patience, arena.fd) as worker:
                yield worker, arena
        except WorkerDied as error:
            reason = f"the candidate's process failed: {error}"
            raise Decided("rejected", "run", reason, "run") from None
        finally:
            arena.close()

    def _sharing(self) -> contextlib.AbstractContextManager[None]:
        """The GPU, shared with others that check but do not time."""
        if self.device.type == "cpu":
            return contextlib.nullcontext()
        return hold_gpu(self._gpu_uuid, alone=False)

    def _compile(self, candidate: Candidate, plans: list[Plan], exam: Exam, found: Proceedings) -> None:
        """Compile every kernel that ``forward`` launches for the environment's architecture.

        At each case's main sizes, and where a size is 1: Triton compiles that one as a constant.
        """
        questions = []
        for plan in plans:
            ones = [probe for probe in plan.probes if 1 in dict(probe.sizes).values()]
            questions += [exam.question(probe) for probe in (plan.probes[0], *ones[:1])]
        with self._worker(self._compiler) as (worker, arena):
            self._load(worker, candidate)
            for question in questions:
                reply = worker.ask("compile", inputs=pose(worker, arena, question).arguments)
                if "error" in reply:
                    reason = f"it fails at {question.probe.describe()}: {said(reply)}"
                    raise Decided("rejected", "run", reason, "run")
                kernels = reply.get("kernels", [])
                passed = "refused" not in reply and isinstance(kernels, list)
                refused = said({"error": reply.get("refused")})
                detail = "" if passed else f"it cannot be compiled for {self.environment.arch}: {refused}"
                name = f"compiles for {self.environment.arch}"
                found.check("compile", "compile", Check(name, passed, str(len(kernels)), None, detail))

    def _load(self, worker: WorkerHandle, candidate: Candidate) -> None:
        reply = worker.ask("load", source=candidate.source)
        if "error" in reply:
            raise Decided("rejected", "load", f"it cannot be imported: {said(reply)}", "load")

    def _examine(
        self, worker: WorkerHandle, arena: Arena, probes: Sequence[Probe], exam: Exam, found: Proceedings
    ) -> bool:
        """Put all questions of one case; whether the case counts: some question tells right from wrong."""
        counted = False
        weak = ""
        first = None
        for number, probe in enumerate(probes):
            if probe.rule in self.policy.disabled and number:
                continue
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

    def _time(self, worker: WorkerHandle, arena: Arena, plan: Plan, exam: Exam, found: Proceedings) -> None:
        """Time one case, alone on the GPU."""
        name = plan.case.name
        probes = [Probe(name, tuple(plan.sizes.items()), self._seed + 100 + i) for i in range(2)]
        dice = random.Random(secrets.randbits(64))
        with self._sharing():
            questions = [exam.question(probe) for probe in probes]
            put(worker, arena, questions[0], exam, found)
            exam.compiled(questions[0])
        with hold_gpu(self._gpu_uuid, alone=True):
            if self._roofline is None:
                self._roofline = measure_roofline(self._clock)
            posed = pose(worker, arena, questions[0])
            check_device_time(worker, posed, questions[0], self.policy, found)
            runner = Runner(worker, arena, posed, questions, exam, found, dice)
            result = race(runner, self._roofline, self._clock)
        found.timing.append(replace(result, case=name))


def make_context(worker: WorkerHandle) -> None:
    """Have a worker make its CUDA context. The candidate is not loaded yet, so a failure is not its own.

    Raises:
        Decided: there is no context to be had.
    """
    reply = worker.ask("context")
    if "error" in reply:
        raise Decided("inconclusive", "load", f"the worker could not start CUDA: {said(reply)}")


def _compare_speed(brief: Brief, found: Proceedings) -> None:
    """Whether the kernel is worth having: some case gains and none loses.

    Raises:
        Decided: it is not.
    """
    slow = []
    for timing in found.timing:
        against_compiled = brief.baseline == "compile" and timing.speedup_compiled is not None
        s = timing.speedup_compiled if against_compiled and timing.speedup_compiled else timing.speedup
        name = "torch.compile" if against_compiled else "eager"
        enough = s.low >= brief.min_speedup
        detail = f"{s.value:.2f}x {name} [{s.low:.2f}, {s.high:.2f}] on {timing.case}, wanted at least {brief.min_speedup:.2f}x"
        check = Check(f"speedup on {timing.case}", enough, s.low, brief.min_speedup, detail)
        found.checks.append(check)
        if not enough:
            slow.append((check, s.high))
    loses = any(high < 1.0 for _, high in slow)
    if slow and (loses or len(slow) == len(found.timing)):
        raise Decided("rejected", "timing", f"not fast enough: {slow[0][0].detail}", "speed")
