"""Judges candidates: static check, compilation, probes and timing, in this order."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import torch

from kernelllm_judge.addresses.certify import certify
from kernelllm_judge.beside import Beside, compile_all, require_compiled, sanitize_all
from kernelllm_judge.constructors import Constructors
from kernelllm_judge.core import accelerator
from kernelllm_judge.core.measured import CaseTime, Measured
from kernelllm_judge.core.records import (
    LACKS,
    SIZES_ASKED,
    BaselineChoice,
    Candidate,
    Check,
    Environment,
    Stage,
    Verdict,
)
from kernelllm_judge.core.shorten import whole
from kernelllm_judge.core.spans import Recorder
from kernelllm_judge.core.stages import InStage, unwatched
from kernelllm_judge.examine import examine, examine_decisions
from kernelllm_judge.findings import WAITING, Decision, Durations, Findings, Outcome, OutOfMemory, outcome_of
from kernelllm_judge.isolation.isolation import Isolation, probe_isolation
from kernelllm_judge.launching import ServerFailed, ServerHost
from kernelllm_judge.leases import KeptReferences, Lease, Leases, Lending
from kernelllm_judge.plans import Plan, make_plans, sizes_asked
from kernelllm_judge.policy import Policy
from kernelllm_judge.rules.catalog import RULES
from kernelllm_judge.rules.rule import Rule
from kernelllm_judge.run.call import Judging
from kernelllm_judge.shared.buffers import GpuBlockPool
from kernelllm_judge.standing import versions
from kernelllm_judge.supervisor import ForkServer, start_together
from kernelllm_judge.timer import JUDGE, PUBLIC_SEED, Timer
from kernelllm_judge.truth.outputs import OriginalError, ReferenceOutputs, Subject
from kernelllm_judge.truth.probes import Probe, smaller
from kernelllm_judge.workers import Workers

HALVINGS = 6
"""How often a case's elements are halved, at most, until there is enough GPU memory to time it."""

RELEASE_SECONDS = 10.0
"""Seconds to wait for an ended worker's memory to be freed."""

TRIES = 3
"""How many processes in a row must die by a signal until that counts as the candidate's own doing."""

ENDS = (Decision, OriginalError, torch.OutOfMemoryError)
"""What ends the judging of a candidate without acceptance."""

LONGEST_MEASURED = 30.0
"""Seconds that a worker may take for a candidate that is only timed: one that hangs keeps others from timing."""


@dataclass(frozen=True)
class Criteria:
    """The target and what a candidate for it must achieve."""

    subject: Subject
    tolerance: float | None = None
    min_speedup: float = 1.05
    baseline: BaselineChoice = "eager"
    """What ``min_speedup`` is measured against; eager where the module cannot be compiled."""
    nonfinite: bool = True
    """Whether NaN and infinities must come out as in the original."""
    timing: bool = True
    """Whether accepted candidates are timed, on a GPU."""
    adopted: bool = False
    """Whether the kernel ships already, see ``plans.make_plans``."""


class Judge:
    """Judges candidates in one environment, one after the other; starts its processes on first use."""

    def __init__(
        self,
        environment: Environment,
        *,
        deadline: float = 60.0,
        gpu_uuid: str = "",
        isolation: Isolation | None = None,
        gpu_memory: int = 0,
        policy: Policy | None = None,
        rules: Sequence[Rule] = RULES,
        in_stage: InStage = unwatched,
        recorder: Recorder | None = None,
        host: ServerHost | None = None,
    ) -> None:
        """Probes the machine's isolation; no process is started yet.

        Args:
            environment: what verdicts will hold for.
            deadline: seconds a candidate's worker may take for all its replies.
            gpu_uuid: names the GPU's lock.
            gpu_memory: bytes of GPU memory that all judges of this GPU may take together; 0: nearly all of it.
            isolation: how workers are isolated; by default as well as this machine allows.
            policy: thresholds other than the published ones, for tests of the judge itself; so are ``rules``.
            in_stage: gives the context for each stage in which the user's original runs.
            recorder: gets what is done as spans.
            host: what the judge's own processes are forked from; None: one of its own. It is closed with the judge.
        """
        self.environment = environment
        self.policy, self._recorder = policy or Policy(), recorder
        self.isolation = isolation or probe_isolation(environment.device)
        self.device = accelerator.gpu() if environment.on_gpu else torch.device("cpu")
        self.rules = tuple(rule for rule in rules if rule.device in ("any", environment.device))
        self._seed = secrets.randbelow(1 << 30)
        self._timer = Timer(gpu_uuid, self._seed)
        self._closing = contextlib.ExitStack()
        self._host = host or ServerHost()
        self._leases: Leases | None = None
        cpu = torch.device("cpu")
        if self.environment.on_gpu:
            server = ForkServer("cuda", self.isolation, host=self._host)
            self._leases = Leases(gpu_uuid, gpu_memory)
            self._workers = Workers(
                server, self.device, deadline, GpuBlockPool(self.device), self._timer.released
            )
            without_gpu = replace(self.isolation, gpu=False, unix_sockets=False, memfd=False)
            interpreter = ForkServer("interpret", without_gpu, host=self._host)
            self._interpreters = Workers(interpreter, cpu, deadline)
            self._servers = [server, interpreter]
        else:
            server = ForkServer("interpret", self.isolation, host=self._host)
            self._workers = Workers(server, cpu, deadline * self.policy.interpreter_patience)
            compiler = ForkServer("compile", self.isolation, environment.arch, host=self._host)
            self._compilers = Workers(compiler, cpu, deadline)
            self._servers = [server, compiler]
        self.rejected_at: Probe | None = None
        """The probe at which the last candidate was rejected; None: at none, or it was not."""
        self.constructors = Constructors(self.isolation, host=self._host)
        """Run the constructors of the answers that are rendered for this judge."""
        self._references = KeptReferences(self.policy, in_stage, self._leases)

    def __enter__(self) -> Judge:
        """Starts the fork servers in the background."""
        start_together(self._servers)
        if self.environment.on_gpu:
            from kernelllm_judge.shared.compiling import compile_in  # imports Triton

            self._closing.callback(compile_in(self._timer.compiling))
        return self

    def __exit__(self, *exc: object) -> None:
        """Ends the fork servers and all workers."""
        self._closing.close()
        self.constructors.close()
        for server in self._servers:
            server.close()
        self._host.close()

    def judge(self, candidate: Candidate, criteria: Criteria) -> Verdict:
        """Judges one candidate. Never raises for anything the candidate does.

        Raises:
            launching.ServerFailed: the judge's own processes cannot start.
        """
        start = time.perf_counter()
        lending = Lending(self._leases, self._reference_outputs(criteria))
        waited = 0.0
        for alone in (False, True):
            with lending.lease(alone=alone) as leased:
                outcome = self._judged(candidate, criteria, leased)
                waited += leased.waited
            if not outcome.out_of_memory or leased.all:
                break
        reason = outcome.reason + (lending.what_would_do() if outcome.out_of_memory else "")
        findings = outcome.findings
        findings.durations.add("waiting for memory", waited)
        self.rejected_at = outcome.probe if outcome.verdict == "rejected" else None
        return Verdict(
            verdict=outcome.verdict,
            stage=outcome.stage,
            reason=reason,
            kernel_hash=candidate.kernel_hash,
            environment=self.environment,
            rule=outcome.rule,
            fence=findings.fence,
            versions=versions(rule.name for rule in self.rules),
            checks=tuple(findings.checks),
            timing=tuple(findings.timing),
            cases=tuple(findings.cases),
            seconds=round(time.perf_counter() - start, 3),
            durations=findings.durations.rounded(),
            isolation=self.isolation.level,
            addresses=findings.certificate,
        )

    def measure(self, candidate: Candidate, criteria: Criteria) -> Measured:
        """Times a candidate at its cases' own sizes, without judging it. Never raises for anything the candidate does.

        Raises:
            launching.ServerFailed: the judge's own processes cannot start.
        """
        if not self.environment.on_gpu:
            return Measured(error="there is no GPU to measure on")
        begin = time.perf_counter()
        findings = Findings({}, durations=Durations(self._recorder, candidate.target))
        times: tuple[CaseTime, ...] = ()
        references = self._reference_outputs(criteria)
        workers = replace(self._workers, seconds=min(self._workers.seconds, LONGEST_MEASURED))
        what = candidate.source, criteria.subject.cases, (), self.policy
        plans = partial(make_plans, *what, on_gpu=True, seed=PUBLIC_SEED, nonfinite=False)
        lending = Lending(self._leases, references)
        waited = 0.0
        for alone in (False, True):
            error = ""
            try:
                with (
                    lending.lease(alone=alone, only_timed=True) as leased,
                    workers.loaded(candidate.source, references, findings, leased) as judging,
                ):
                    waited += leased.waited
                    times = tuple(self._timer.time_alone(judging, p.case.name, p.sizes) for p in plans())
            except ENDS as end:
                error = whole(end) or type(end).__name__
                if isinstance(end, OutOfMemory | torch.OutOfMemoryError) and not leased.all:
                    continue
            break
        waited += findings.durations.seconds.get(WAITING, 0.0)
        spent = time.perf_counter() - begin - waited
        return Measured(times, error, round(spent, 3))

    @contextlib.contextmanager
    def loaded(self, source: str, criteria: Criteria, rule: str) -> Iterator[Judging]:
        """Opens a worker that has loaded a kernel module, to call it at single probes as those of a rule. Raises what ``ENDS`` lists."""
        interpreted = rule == "memory" and self.environment.on_gpu
        workers = self._interpreters if interpreted else self._workers
        references = self._reference_outputs(criteria, "cpu" if interpreted else "")
        findings = Findings({each.name: each.stage for each in self.rules})
        with (
            Lending(None if interpreted else self._leases, references).lease(alone=False) as leased,
            workers.loaded(source, references, findings, leased) as judging,
        ):
            yield judging

    def _judged(self, candidate: Candidate, criteria: Criteria, leased: Lease) -> Outcome:
        """Judges with a lease; again, in fresh processes, where a signal ended one: it may have come from outside."""
        last: Stage = "timing" if criteria.timing and self.environment.on_gpu else "correctness"
        rules = {rule.name: rule.stage for rule in self.rules}
        for left in reversed(range(TRIES)):
            findings = Findings(rules, durations=Durations(self._recorder, candidate.target))
            try:
                self._proceed(candidate, criteria, findings, leased)
            except ServerFailed:
                if not left:
                    raise
                continue
            except ENDS as end:
                outcome = outcome_of(end, findings)
            else:
                outcome = Outcome(findings, "accepted", last)
            if not outcome.process_lost:
                break
        return outcome

    def _proceed(self, candidate: Candidate, criteria: Criteria, findings: Findings, leased: Lease) -> None:
        """Judges a candidate, from its source to its speed. Where nothing is raised, it is accepted; for what is see ``ENDS``."""
        for rule in self.rules:
            rule.check_source(candidate.source, findings)
        on_gpu = self.environment.on_gpu
        plans = make_plans(
            candidate.source,
            criteria.subject.cases,
            self.rules,
            self.policy,
            on_gpu=on_gpu,
            seed=self._seed,
            nonfinite=criteria.nonfinite,
            adopted=criteria.adopted,
        )
        if not on_gpu and (asked := sizes_asked(plans)):
            findings.checks.append(Check(SIZES_ASKED, True, None, None, asked))
        references = self._reference_outputs(criteria)
        timed = criteria.timing and on_gpu
        short: dict[str, str] = {}
        """Who ran out of memory, by the case that was timed."""
        with (
            self._beside(candidate, plans, criteria, findings) as beside,
            self._workers.loaded(candidate.source, references, findings, leased) as judging,
        ):
            for plan in plans:
                if examine(judging, plan, self.rules, self._timer, beside):
                    findings.cases.append(plan.case.name)
            if not findings.cases:
                check = next(c for c in findings.checks if c.name == "discriminating inputs")
                raise Decision("inconclusive", "correctness", check.detail)
            if findings.undecided:
                if not on_gpu:
                    findings.checks.append(Check(LACKS, True, None, None, "a GPU"))
                raise Decision("inconclusive", "correctness", findings.undecided)
            examine_decisions(judging, candidate.source, plans, self.rules, self._timer, beside)
            if timed:
                short = {
                    plan.case.name: self._timer.time_plan(judging, plan, plan.sizes, self.rules)
                    for plan in plans
                    if plan.case.name in findings.cases
                }
            self._certify(candidate, plans, references, judging)
        require_compiled(self.environment.arch, findings)
        for plan in plans:
            if who := short.get(plan.case.name):
                judging.allocator.closed.wait(RELEASE_SECONDS)
                self._time_smaller(candidate, plan, references, findings, leased, criteria.baseline, who)
        if timed:
            for rule in self.rules:
                rule.check_speedups(findings.timing, criteria.min_speedup, criteria.baseline, findings)

    def _reference_outputs(self, criteria: Criteria, device: str = "") -> ReferenceOutputs:
        """Returns the target's reference outputs, on the judge's own device unless another is named."""
        return self._references.of(criteria.subject, criteria.tolerance, device or str(self.device))

    def _beside(
        self, candidate: Candidate, plans: list[Plan], criteria: Criteria, findings: Findings
    ) -> Beside:
        """Compiles the kernels in the background where they are interpreted, and interprets them on a GPU."""
        references = self._reference_outputs(criteria, "cpu")
        if self.environment.on_gpu:
            rule, do, workers = "memory", sanitize_all, self._interpreters
        else:
            rule, do, workers = "compile", compile_all, self._compilers
        task = partial(do, workers, candidate.source, plans, references) if rule in findings.rules else None
        return Beside(task, findings)

    def _certify(
        self, candidate: Candidate, plans: list[Plan], references: ReferenceOutputs, judging: Judging
    ) -> None:
        """Looks at where addresses lie, in a worker that compiles. Last, because host code runs without values for it."""
        if "addresses" not in (findings := judging.findings).rules:
            return
        compiler: contextlib.AbstractContextManager[Judging] = contextlib.nullcontext(judging)
        if self.device.type == "cpu":
            compiler = self._compilers.loaded(candidate.source, references, findings)
        with findings.durations.part("addresses"):
            findings.certificate = certify(compiler, plans, self._seed)

    def _time_smaller(
        self,
        candidate: Candidate,
        plan: Plan,
        references: ReferenceOutputs,
        findings: Findings,
        leased: Lease,
        baseline: BaselineChoice,
        who: str,
    ) -> None:
        """Times a case at the largest smaller sizes that fit into memory.

        One that has none is timed without ``torch.compile``, where the baseline is eager and the judge's process was short:
        ``torch.compile`` may copy inputs and outputs for a layout of its own. Each try gets a fresh worker, because one that
        ran out of memory may still hold some.

        Raises:
            OutOfMemory: no sizes fit.
        """
        tries = [(sizes, True) for sizes in islice(smaller(plan.case, plan.ranges, plan.sizes), HALVINGS)]
        if not tries and baseline == "eager" and who == JUDGE:
            tries = [(dict(plan.sizes), False)]
        for sizes, compiled in tries if leased.all else ():  # it is tried with everything first
            accelerator.empty_cache()
            with self._workers.loaded(candidate.source, references, findings, leased) as judging:
                who = self._timer.time_plan(judging, plan, sizes, self.rules, compiled=compiled)
            if not who:
                return
            judging.allocator.closed.wait(RELEASE_SECONDS)
        raise OutOfMemory(f"in {who} to time case {plan.case.name}", "timing")
