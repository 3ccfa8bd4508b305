"""Runs the model: timed on its GPU, or without data, or on the CPU where it does not run without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelllm_judge.core import accelerator
from kernelllm_judge.shared.clock import GpuClock
from kernelllm_judge.target.errors import in_one_line
from kernelllm_judge.timing.roofline import Roofline, measure_roofline
from pytest_kernelllm.beside.ranking.errors import RankError
from pytest_kernelllm.beside.ranking.factory import Factory, Subject, build
from pytest_kernelllm.beside.ranking.integers import KnownIntegers
from pytest_kernelllm.beside.ranking.trace import Trace, record

REPEATS = 3
"""Timed runs; each operation's time is the median."""
STEPS = 10
"""Runs whose time from the call to the end of the GPU's work is measured."""

Report = Callable[[str], None]
"""A function that is called with a text about what is being done."""


@dataclass(frozen=True)
class Run:
    """What running a model gave."""

    subject: Subject
    trace: Trace
    roofline: Roofline | None = None
    """The measured rates of the GPU; None without a GPU."""
    step_us: float | None = None
    """µs from the call to the end of the GPU's work, median; None if not measured."""
    notes: tuple[str, ...] = ()


def measured(subject: Subject, report: Report) -> Run:
    """Runs a model on the current GPU, each operation timed.

    Raises:
        RankError: the model fails.
    """
    with explained(), torch.no_grad():
        report("running the model")
        subject.run()
        step = statistics.median(_seconds(subject) for _ in range(STEPS)) * 1e6
        report("timing each operation")
        traces = [record(subject.model, subject.run, GpuStopwatch()) for _ in range(REPEATS)]
        roofline = measure_roofline(GpuClock())
    last = traces[-1]
    alike = [trace for trace in traces if len(trace.operations) == len(last.operations)]
    times = zip(*(trace.microseconds for trace in alike), strict=True)
    return Run(subject, replace(last, microseconds=tuple(map(statistics.median, times))), roofline, step)


def counted(subject: Subject, report: Report, integers: KnownIntegers | None = None) -> Run:
    """Runs a model without data if it can be, else on the CPU.

    Raises:
        RankError: the model fails.
    """
    report("counting bytes and FLOPs")
    if any(parameter.is_meta for parameter in subject.model.parameters()):
        with explained(), torch.device("meta"), integers or KnownIntegers() as known:
            subject = subject.to("meta")
            return Run(subject, record(subject.model, subject.run, integers=known))
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return Run(subject, record(subject.model, subject.run))
    except Exception as error:  # much of what runs on data does not run without
        why = in_one_line(error)
    report("running the model on its data, because it does not run without")
    with explained():
        note = f"The model ran on its data, because it does not run without: {why}."
        return Run(subject, record(subject.model, subject.run), notes=(note,))


def built_and_counted(factory: Factory, report: Report) -> Run:
    """Builds a model without memory if it can be, and counts.

    Raises:
        RankError: the factory or the model fails.
    """
    report("building the model without data")
    try:
        integers = KnownIntegers()
        with integers:
            subject = build(factory, "meta")
        return counted(subject, report, integers)
    except RankError as error:
        why = str(error)
    report("building the model with data")
    run = counted(build(factory, None), report)
    note = f"The model was built in memory, because it cannot be without: {why}"
    return replace(run, notes=(note, *run.notes))


class GpuStopwatch:
    """Times operations on the current GPU, each launched while the GPU waits, so that Python's time does not count."""

    _CYCLES = 500_000
    """Cycles for which the GPU waits: longer than Python takes for one operation."""

    def time(self, call: Callable[[], Any]) -> tuple[Any, Callable[[], float]]:
        """Makes a call; returns its result, and a function that returns its µs."""
        start, end = accelerator.timing_event(), accelerator.timing_event()
        torch.cuda._sleep(self._CYCLES)
        start.record()
        made = call()
        end.record()

        def microseconds() -> float:
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e3

        return made, microseconds


def _seconds(subject: Subject) -> float:
    accelerator.synchronize()
    start = time.perf_counter()
    subject.run()
    accelerator.synchronize()
    return time.perf_counter() - start


@contextmanager
def explained() -> Iterator[None]:
    """Raises what the user's model raises inside the block, and a lack of memory, as one sentence.

    Raises:
        RankError: instead of any other exception.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise RankError(
            "The model needs more memory than the GPU has; add --count to count bytes and FLOPs only."
        ) from error
    except RankError:
        raise
    except (Exception, SystemExit) as error:
        raise RankError(f"The model fails: {in_one_line(error)}.") from error
