"""The judge: puts one candidate through screen, compiler, exam and clock, and says what it found."""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from pytest_kernelllm.judge.exam import Exam, ExamError, Subject
from pytest_kernelllm.judge.gpu_lock import hold_gpu
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.probes import Limits, Probe, covers, plan
from pytest_kernelllm.judge.race import race
from pytest_kernelllm.judge.screen import screen
from pytest_kernelllm.judge.slabs import Arena, Pool
from pytest_kernelllm.judge.supervisor import ForkServer, Isolation, WorkerDied, WorkerHandle, probe_isolation
from pytest_kernelllm.judge.timing import Roofline, measure_roofline
from pytest_kernelllm.judge.trial import Decided, Proceedings, pose, put, said
from pytest_kernelllm.kernel_module import KernelModuleError, read_supports
from pytest_kernelllm.records import Candidate, Case, Check, Environment, Stage, Status, Verdict


@dataclass(frozen=True)
class Brief:
    """What the judge is to decide about one target."""

    subject: Subject
    tolerance: float | None = None
    min_speedup: float = 1.05
    timing: bool = True


class Judge:
    """Decides about candidates in one environment. Thread-safe; starts its processes on first use."""

    def __init__(
        self,
        environment: Environment,
        *,
        deadline: float = 60.0,
        gpu_uuid: str = "",
        policy: Policy | None = None,
    ) -> None:
        """``deadline``: seconds a candidate's worker may live."""
        self.environment = environment
        self.deadline = deadline
        self.policy = policy or Policy()
        self.isolation: Isolation = probe_isolation("cuda" if environment.device == "cuda" else "interpret")
        self.device = torch.device("cuda", 0) if environment.device == "cuda" else torch.device("cpu")
        self._gpu_uuid = gpu_uuid
        self._seed = secrets.randbelow(1 << 30)
        self._lock = threading.Lock()
        self._exams: dict[int, tuple[Subject, Exam]] = {}
        self._roofline: Roofline | None = None
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
        plans = self._plans(candidate, brief.subject)
        exam = self._exam(brief)
        if self.device.type == "cpu":
            self._compile(candidate, plans, exam, found)
        holding = (
            hold_gpu(self._gpu_uuid, alone=False) if self.device.type == "cuda" else contextlib.nullcontext()
        )
        with holding:
            for case, probes in plans:
                if self._examine(candidate, probes, exam, found):
                    found.cases.append(case.name)
        if not found.cases:
            weak = next(c for c in found.checks if c.name == "telling inputs")
            raise Decided("inconclusive", "correctness", weak.detail)
        if brief.timing and self.device.type == "cuda":
            self._time(candidate, [case for case, _ in plans if case.name in found.cases], exam, brief, found)

    def _plans(self, candidate: Candidate, subject: Subject) -> list[tuple[Case, list[Probe]]]:
        """The probes for each case that the candidate says it supports."""
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
        for case in subject.cases:
            for support in supports:
                ranges = covers(support, case)
                if isinstance(ranges, str):
                    refusals.append(f"{case.name}: {ranges}")
                    continue
                floats = (k for k, v in case.domain.attributes.items() if isinstance(v, float))
                nudged = tuple(k for k in floats if k not in support.attributes)
                plans.append((case, plan(case, ranges, nudged, policy, limits, self._seed)))
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
            return kept[1]

    @contextlib.contextmanager
    def _worker(self, server: ForkServer, stage: Stage) -> Iterator[tuple[WorkerHandle, Arena]]:
        """A worker with an arena; its end, however it comes, is a rejection at ``stage``."""
        arena = Arena(self.device, self._pool)
        try:
            patience = self.policy.interpreter_patience if server.mode == "interpret" else 1.0
            with server.worker(self.deadline * patience, arena.fd) as worker:
                yield worker, arena
        except WorkerDied as error:
            raise Decided("rejected", stage, f"the candidate's process failed: {error}", "run") from None
        finally:
            arena.close()

    def _compile(
        self, candidate: Candidate, plans: list[tuple[Case, list[Probe]]], exam: Exam, found: Proceedings
    ) -> None:
        """Compile every kernel that ``forward`` launches for the environment's architecture.

        At each case's main sizes, and where a size is 1: Triton compiles that one as a constant.
        """
        questions = []
        for _, probes in plans:
            ones = [probe for probe in probes if 1 in dict(probe.sizes).values()]
            questions += [exam.question(probe) for probe in (probes[0], *ones[:1])]
        with self._worker(self._compiler, "compile") as (worker, arena):
            self._load(worker, candidate, "compile")
            for question in questions:
                arguments, _ = pose(worker, arena, question)
                reply = worker.ask("compile", inputs=arguments)
                kernels = reply.get("kernels", [])
                passed = "error" not in reply and isinstance(kernels, list)
                detail = "" if passed else f"it cannot be compiled for {self.environment.arch}: {said(reply)}"
                found.check(
                    "compile",
                    "compile",
                    Check(f"compiles for {self.environment.arch}", passed, str(len(kernels)), None, detail),
                )

    def _load(self, worker: WorkerHandle, candidate: Candidate, stage: Stage) -> None:
        reply = worker.ask("load", source=candidate.source)
        if "error" in reply:
            raise Decided("rejected", "load", f"it cannot be imported: {said(reply)}", "load")

    def _examine(self, candidate: Candidate, probes: list[Probe], exam: Exam, found: Proceedings) -> bool:
        """Put all questions of one case to one worker; whether the case counts: some question tells right from wrong."""
        counted = False
        weak = ""
        with self._worker(self._runner, "run") as (worker, arena):
            self._load(worker, candidate, "load")
            for probe in probes:
                question = exam.question(probe)
                put(worker, arena, question, exam, found)
                if question.impostor is None:
                    counted = True
                else:
                    weak = f"{question.impostor} would pass as its output at {probe.describe()}"
        name = probes[0].case
        detail = (
            ""
            if counted
            else f"the inputs of case {name} prove nothing: {weak}; give inputs that tell outputs apart"
        )
        found.checks.append(Check("telling inputs", counted, weak or None, None, detail))
        return counted

    def _time(
        self, candidate: Candidate, cases: list[Case], exam: Exam, brief: Brief, found: Proceedings
    ) -> None:
        """Time each case at its own sizes, alone on the GPU."""
        with hold_gpu(self._gpu_uuid, alone=True):
            if self._roofline is None:
                self._roofline = measure_roofline()
            for case in cases:
                probe = Probe(case.name, tuple(case.sizes.items()), self._seed + 100)
                question = exam.question(probe)
                with self._worker(self._runner, "timing") as (worker, arena):
                    self._load(worker, candidate, "timing")
                    put(worker, arena, question, exam, found)
                    result = race(
                        worker, arena, question, exam, self.policy, self._roofline, random.Random(self._seed)
                    )
                for check in result.checks:
                    found.check("timing", "clocks", check)
                found.timing.append(replace(result.timing, case=case.name))
                timing = found.timing[-1]
                wanted = brief.min_speedup
                enough = timing.speedup.low >= wanted
                s = timing.speedup
                detail = f"{s.value:.2f}x eager [{s.low:.2f}, {s.high:.2f}] on {case.name}, wanted at least {wanted:.2f}x"
                found.checks.append(Check(f"speedup on {case.name}", enough, s.low, wanted, detail))
        # A kernel is worth having when some case gains and none loses.
        slow = [c for c in found.checks if c.name.startswith("speedup on") and not c.passed]
        gains = len(slow) < len(found.timing) and all(t.speedup.high >= 1.0 for t in found.timing)
        if slow and not gains:
            raise Decided("rejected", "timing", f"not fast enough: {slow[0].detail}", "speed")
