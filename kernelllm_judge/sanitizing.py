"""Checks a candidate's memory accesses in Triton's interpreter, on machines where it runs on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from kernelllm_judge.core.records import Check
from kernelllm_judge.findings import Decision, Findings
from kernelllm_judge.plans import Plan
from kernelllm_judge.run.backward import run_backward
from kernelllm_judge.run.call import Judging, run_probe
from kernelllm_judge.truth.outputs import OriginalError, ReferenceOutputs
from kernelllm_judge.truth.probes import Probe, elements
from kernelllm_judge.workers import Workers


def sanitize_all(
    workers: Workers, source: str, plans: Sequence[Plan], references: ReferenceOutputs, findings: Findings
) -> None:
    """Runs the small probes of every case in the interpreter.

    What the interpreter cannot run is recorded as a check that passed, with the reason.

    Args:
        workers: workers in the interpreter.
        source: the kernel module.
        plans: the candidate's probes.
        references: prepares probes on the CPU.
        findings: where checks are recorded.

    Raises:
        Decision: a kernel accessed memory wrongly.
    """
    try:
        with workers.loaded(source, references, findings) as judging:
            for plan in plans:
                for probe in plan.interpreted:
                    _sanitize(judging, plan, probe)
    except Decision as decision:
        if decision.rule == "memory":
            raise
        _record_unchecked(findings, decision.reason)
    except OriginalError as error:
        _record_unchecked(findings, f"{error}")


def _sanitize(judging: Judging, plan: Plan, probe: Probe) -> None:
    size, most = elements(plan.case.domain, dict(probe.sizes)), judging.policy.cpu_elements
    if size > most:
        reason = f"inputs of {size:,} elements are too large for it, at {probe.describe()}"
        _record_unchecked(judging.findings, reason)
        return
    run = run_probe(judging, judging.references.prepare(probe))
    if plan.case.domain.grad:
        run_backward(judging, run.prepared)


def _record_unchecked(findings: Findings, reason: str) -> None:
    detail = f"memory accesses were not checked in Triton's interpreter: {reason}"
    findings.checks.append(Check("memory accesses in the interpreter", True, None, None, detail))
