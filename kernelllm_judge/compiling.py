"""Compiles a candidate's kernels for a GPU architecture, on machines without a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from kernelllm_judge.core.records import Check
from kernelllm_judge.findings import Decision, Findings, OutOfTime
from kernelllm_judge.plans import Plan
from kernelllm_judge.run.call import error_text, upload
from kernelllm_judge.truth.outputs import ReferenceOutputs
from kernelllm_judge.truth.prepared import PreparedProbe
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.workers import Workers


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
