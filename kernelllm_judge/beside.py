"""Compiles a candidate for a GPU architecture, or checks its memory accesses, in a thread beside the probes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import chain

from kernelllm_judge import directing, mutants
from kernelllm_judge.core.records import Check
from kernelllm_judge.directing import Search
from kernelllm_judge.findings import Decision, Findings, OutOfTime
from kernelllm_judge.plans import Plan
from kernelllm_judge.run.backward import run_backward
from kernelllm_judge.run.call import Judging, error_text, run_probe, upload
from kernelllm_judge.truth.acceptance import Unasked
from kernelllm_judge.truth.outputs import OriginalError, ReferenceOutputs
from kernelllm_judge.truth.prepared import PreparedProbe
from kernelllm_judge.truth.probes import Probe, elements
from kernelllm_judge.workers import Workers


class Beside:
    """A part of judging in a thread of its own, while the block runs; its checks are added to the findings in the end.

    When the block ends, the part's decision takes precedence over any other, so the verdict does not depend on which came
    first.
    """

    def __init__(self, task: Callable[[Findings], None] | None, findings: Findings) -> None:
        """Starts ``task``, which gets findings of its own; None: there is nothing to do."""
        self._findings = findings
        self._own = replace(findings, checks=[], timing=[], cases=[], durations=findings.durations.beside())
        thread = ThreadPoolExecutor(1, "kernelllm-beside")
        self._running = None if task is None else thread.submit(task, self._own)
        thread.shutdown(wait=False)

    def wait(self) -> None:
        """Waits for the part, and raises its ``Decision``."""
        if self._running is not None:
            with self._findings.durations.part("waiting for what runs beside"):
                self._running.result()

    def raise_decision(self) -> None:
        """Raises the part's ``Decision`` as soon as it is known."""
        if self._running is not None and self._running.done():
            self._running.result()

    def __enter__(self) -> Beside:
        """Begins the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Waits for the part, unless a keyboard interrupt ended the block."""
        if self._running is None or (kind is not None and not issubclass(kind, Exception)):
            return
        with self._findings.durations.part("waiting for what runs beside"):
            wait([self._running])
        self._findings.checks += self._own.checks
        self._running.result()


def compile_all(
    workers: Workers, source: str, plans: Sequence[Plan], references: ReferenceOutputs, findings: Findings
) -> None:
    """Compiles every kernel that ``forward`` launches, and records one check per probe.

    Each case is compiled at its main sizes, and once where a size is 1, which Triton compiles as a constant.
    If time runs out, the check states what was not compiled; it fails if main sizes are among it.

    Raises:
        Decision: the compiler refuses a kernel, or ``forward`` fails.
    """
    arch = workers.server.arch
    ones = [[probe for probe in plan.probes if 1 in dict(probe.sizes).values()] for plan in plans]
    probes = [plan.probes[0] for plan in plans] + [probe for some in ones for probe in some[:1]]
    compiled: list[Probe] = []
    try:
        _compile(
            workers, source, [references.prepare(probe) for probe in probes], references, findings, compiled
        )
    except OutOfTime:
        left = "; ".join(probe.describe() for probe in probes[len(compiled) :])
        detail = f"there was no time to compile it for {arch} at {left}"
        findings.checks.append(Check(_name(arch), len(compiled) >= len(plans), None, None, detail))


def require_compiled(arch: str, findings: Findings) -> None:
    """Requires that the kernels have been compiled at the main sizes of every case.

    Raises:
        Decision: there was no time for it.
    """
    for check in findings.checks:
        if check.name == _name(arch) and not check.passed:
            raise Decision("inconclusive", "compile", check.detail)


def _compile(
    workers: Workers,
    source: str,
    prepared_probes: Sequence[PreparedProbe],
    references: ReferenceOutputs,
    findings: Findings,
    compiled: list[Probe],
) -> None:
    """Compiles at all given probes, and adds each to ``compiled`` when that is done."""
    arch = workers.server.arch
    with workers.loaded(source, references, findings) as judging:
        for prepared in prepared_probes:
            reply = judging.worker.request("compile", inputs=upload(judging, prepared).arguments)
            if "error" in reply:
                reason = f"it fails at {prepared.probe.describe()}: {error_text(reply)}"
                raise Decision("rejected", "run", reason, "run")
            kernels = reply.get("kernels", [])
            passed = "refused" not in reply and isinstance(kernels, list)
            refused = error_text({"error": reply.get("refused")})
            detail = "" if passed else f"it cannot be compiled for {arch}: {refused}"
            findings.record("compile", Check(_name(arch), passed, str(len(kernels)), None, detail))
            compiled.append(prepared.probe)


def _name(arch: str) -> str:
    return f"compiles for {arch}"


def sanitize_all(
    workers: Workers, source: str, plans: Sequence[Plan], references: ReferenceOutputs, findings: Findings
) -> None:
    """Runs the small probes of every case in the interpreter, and those at which kernels decide otherwise.

    What the interpreter cannot run is recorded as a check that passed, with the reason.

    Raises:
        Decision: a kernel accessed memory wrongly.
    """
    try:
        with workers.loaded(source, references, findings) as judging:
            for plan in plans:
                for probe in plan.interpreted:
                    _sanitize(judging, plan, probe)
            small = [_small(judging, plan) for plan in plans if plan.interpreted and _fits(judging, plan)]
            for plan in small if directing.RULE in findings.rules else ():
                _decide(judging, plan)
            if mutants.RULE in findings.rules:
                mutants.find(judging, small)
    except Decision as decision:
        if decision.rule == "memory":
            raise
        _record_unchecked(findings, decision.reason)
    except OriginalError as error:
        _record_unchecked(findings, f"{error}")


def _fits(judging: Judging, plan: Plan) -> bool:
    """Whether the smallest sizes that a plan has for the interpreter are small enough for many calls."""
    return elements(plan.case.domain, dict(plan.interpreted[0].sizes)) <= judging.policy.cpu_elements


def _sanitize(judging: Judging, plan: Plan, probe: Probe) -> None:
    size, most = elements(plan.case.domain, dict(probe.sizes)), judging.policy.cpu_elements
    if size > most:
        reason = f"inputs of {size:,} elements are too large for it, at {probe.describe()}"
        _record_unchecked(judging.findings, reason)
        return
    run = run_probe(judging, judging.references.prepare(probe))
    if plan.case.domain.grad:
        run_backward(judging, run.prepared)


def _decide(judging: Judging, plan: Plan) -> None:
    """Notes the probes, of those that run on a GPU, too, and of further ones, at which kernels decide as at no others so far.

    Nothing is compared here: what is noted is run on the GPU.
    """
    sites, sizes = judging.findings.sites, plan.main[0].sizes
    search = Search(plan, sites)
    kinds = {(p.stress, p.state, p.values): replace(p, sizes=sizes) for p in plan.further if not p.incoming}
    for probe in chain(kinds.values(), search.probes()):
        if not (before := sites.open(nonfinite=plan.nonfinite)):
            break
        with contextlib.suppress(Unasked):
            run = run_probe(judging, judging.references.prepare(probe))
            if plan.case.domain.grad:
                run_backward(judging, run.prepared)
            directing.doubt(judging, sites)
            if probe.directed or probe.rule == directing.RULE:
                search.ran.append(probe)
                if len(sites.open(nonfinite=plan.nonfinite)) < len(before):
                    judging.findings.directed.append(probe)
    judging.findings.left[:] = search.left()


def _small(judging: Judging, plan: Plan) -> Plan:
    """Returns the plan with sizes at which it can be interpreted."""
    sizes = plan.interpreted[0].sizes
    main = (replace(plan.main[0], sizes=sizes),)
    return replace(plan, small=dict(sizes), main=main, most=judging.policy.cpu_elements)


def _record_unchecked(findings: Findings, reason: str) -> None:
    detail = f"memory accesses were not checked in Triton's interpreter: {reason}"
    findings.checks.append(Check("memory accesses in the interpreter", True, None, None, detail))
