"""On a machine without a GPU: does every kernel compile for the architecture that it is meant for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from pytest_kernelllm.core.records import Check
from pytest_kernelllm.judge.plans import Plan
from pytest_kernelllm.judge.reference.outputs import Exam
from pytest_kernelllm.judge.run.run import Decided, Proceedings, pose, said
from pytest_kernelllm.judge.workers import Workers


@contextlib.contextmanager
def compiled_beside(
    workers: Workers, source: str, plans: Sequence[Plan], exam: Exam, found: Proceedings
) -> Iterator[Callable[[], None]]:
    """Compile what a candidate launches while the exam goes on inside.

    Yields what raises ``Decided`` as soon as it is known that a kernel cannot be compiled. On leaving, that comes before
    whatever else was found, so that the verdict does not depend on who was first.
    """
    aside = Proceedings(found.disabled)
    thread = ThreadPoolExecutor(1, "kernelllm-compile")
    compiled = thread.submit(compile_all, workers, source, plans, exam, aside)
    thread.shutdown(wait=False)

    def heed() -> None:
        wait([compiled])
        found.checks += aside.checks
        compiled.result()

    try:
        yield lambda: compiled.result() if compiled.done() else None
    except Exception:  # who interrupts does not wait
        heed()
        raise
    heed()


def compile_all(workers: Workers, source: str, plans: Sequence[Plan], exam: Exam, found: Proceedings) -> None:
    """Compile every kernel that ``forward`` launches.

    At each case's main sizes, and where a size is 1: Triton compiles that one as a constant.

    Raises:
        Decided: a kernel is refused by the compiler, or ``forward`` fails.
    """
    arch = workers.server.arch
    questions = []
    for plan in plans:
        ones = [probe for probe in plan.probes if 1 in dict(probe.sizes).values()]
        questions += [exam.question(probe) for probe in (plan.probes[0], *ones[:1])]
    with workers.loaded(source) as (worker, arena):
        for question in questions:
            reply = worker.ask("compile", inputs=pose(worker, arena, question).arguments)
            if "error" in reply:
                reason = f"it fails at {question.probe.describe()}: {said(reply)}"
                raise Decided("rejected", "run", reason, "run")
            kernels = reply.get("kernels", [])
            passed = "refused" not in reply and isinstance(kernels, list)
            refused = said({"error": reply.get("refused")})
            detail = "" if passed else f"it cannot be compiled for {arch}: {refused}"
            check = Check(f"compiles for {arch}", passed, str(len(kernels)), None, detail)
            found.check("compile", "compile", check)
