"""Runs a part of judging in a thread, beside the probes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

from kernelllm_judge.durations import Durations
from kernelllm_judge.findings import Findings


@contextlib.contextmanager
def beside(task: Callable[[Findings], None], findings: Findings) -> Iterator[Callable[[], None]]:
    """Runs ``task`` in a thread while the block runs; its checks are added to ``findings`` in the end.

    Yields a function that raises the task's ``Decision`` as soon as it is known. When the block ends, that
    decision takes precedence over any other, so the verdict does not depend on which came first.
    """
    own = replace(findings, checks=[], timing=[], cases=[], durations=Durations())
    thread = ThreadPoolExecutor(1, "kernelllm-beside")
    running = thread.submit(task, own)
    thread.shutdown(wait=False)

    def collect() -> None:
        with findings.durations.part("waiting for what runs beside"):
            wait([running])
        findings.checks += own.checks
        running.result()

    try:
        yield lambda: running.result() if running.done() else None
    except Exception:  # a keyboard interrupt does not wait for the task
        collect()
        raise
    collect()
