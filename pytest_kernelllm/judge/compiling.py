"""Compiles a candidate's kernels for a GPU architecture, on machines without a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_kernelllm.core.records import Check
from pytest_kernelllm.judge.findings import Decision, Findings
from pytest_kernelllm.judge.plans import Plan
from pytest_kernelllm.judge.reference.outputs import ReferenceOutputs
from pytest_kernelllm.judge.run.call import error_text, upload
from pytest_kernelllm.judge.workers import Workers


def compile_all(
    workers: Workers, source: str, plans: Sequence[Plan], references: ReferenceOutputs, findings: Findings
) -> None:
    """Compiles every kernel that ``forward`` launches, and records one check per probe.

    Each case is compiled at its main sizes, and once where a size is 1, which Triton compiles as a constant.

    Raises:
        Decision: the compiler refuses a kernel, or ``forward`` fails.
    """
    arch = workers.server.arch
    prepared_probes = []
    for plan in plans:
        ones = [probe for probe in plan.probes if 1 in dict(probe.sizes).values()]
        prepared_probes += [references.prepare(probe) for probe in (plan.probes[0], *ones[:1])]
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
            check = Check(f"compiles for {arch}", passed, str(len(kernels)), None, detail)
            findings.record("compile", check)
