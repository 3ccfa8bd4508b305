"""On a machine without a GPU: shows that every kernel compiles for the architecture it is meant for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

from pytest_kernelllm.core.records import Check
from pytest_kernelllm.judge.findings import Decision, Findings
from pytest_kernelllm.judge.plans import Plan
from pytest_kernelllm.judge.reference.outputs import ReferenceOutputs
from pytest_kernelllm.judge.run.call import error_text, upload
from pytest_kernelllm.judge.workers import Workers


@contextlib.contextmanager
def compile_beside(
    workers: Workers, source: str, plans: Sequence[Plan], references: ReferenceOutputs, findings: Findings
) -> Iterator[Callable[[], None]]:
    """Compile what a candidate launches while it is checked inside the block.

    Yields a function that raises ``Decision`` as soon as it is known that a kernel cannot be compiled. On leaving, that
    comes before whatever else was found, so that the verdict does not depend on which finished first.
    """
    own = replace(findings, checks=[], timing=[], cases=[])
    thread = ThreadPoolExecutor(1, "kernelllm-compile")
    compiled = thread.submit(compile_all, workers, source, plans, references, own)
    thread.shutdown(wait=False)

    def collect() -> None:
        wait([compiled])
        findings.checks += own.checks
        compiled.result()

    try:
        yield lambda: compiled.result() if compiled.done() else None
    except Exception:  # an interrupt does not wait
        collect()
        raise
    collect()


def compile_all(
    workers: Workers, source: str, plans: Sequence[Plan], references: ReferenceOutputs, findings: Findings
) -> None:
    """Compile every kernel that ``forward`` launches.

    At each case's main sizes, and where a size is 1: Triton compiles that one as a constant.

    Raises:
        Decision: a kernel is refused by the compiler, or ``forward`` fails.
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
