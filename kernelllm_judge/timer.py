"""Times cases while this process holds the GPU alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.measured import CaseTime
from kernelllm_judge.core.records import Timing
from kernelllm_judge.findings import WAITING, Durations, OutOfMemory
from kernelllm_judge.gpu_lock import Hold, hold_gpu
from kernelllm_judge.plans import Plan
from kernelllm_judge.rules.rule import Rule, TimedCall, seed_of
from kernelllm_judge.run.backward import Backward, upload_backward
from kernelllm_judge.run.call import Judging, ProbeRun, call, run_probe, upload
from kernelllm_judge.run.right_before import RightBefore
from kernelllm_judge.shared.clock import GpuClock
from kernelllm_judge.timing.baselines import OriginalCalls, forward_and_backward, forward_pass
from kernelllm_judge.timing.measure import CandidateRunner, measure, measure_alone
from kernelllm_judge.timing.roofline import Roofline, measure_roofline
from kernelllm_judge.truth.gradients import Gradients
from kernelllm_judge.truth.prepared import PreparedProbe
from kernelllm_judge.truth.probes import Probe

SEED = seed_of("timer")
"""Added to the first seed, so that inputs differ from those of the rules."""

JUDGE = "the judge's process"
"""Whose process there was too little memory for."""

NOT_COMPILED = "timed without torch.compile: there was no memory for it"
"""The note of such a timing."""

PUBLIC_SEED = 1
"""Of the inputs with which candidates are timed that are not judged: they must not learn the judge's."""


class Timer:
    """Times cases on one GPU, which it holds alone meanwhile. For one thread at a time."""

    def __init__(self, gpu_uuid: str, seed: int) -> None:
        """``gpu_uuid`` names the GPU's lock; ``seed`` is the judge's secret first seed."""
        self._gpu_uuid = gpu_uuid
        self._seed = seed
        self._clock = GpuClock()
        self._roofline: Roofline | None = None
        self._holds = _Holds()

    @contextlib.contextmanager
    def sharing(self) -> Iterator[None]:
        """Holds the GPU together with others that check but do not time."""
        with hold_gpu(self._gpu_uuid, alone=False) as self._holds.shared:
            try:
                yield
            finally:
                self._holds.shared = None

    @contextlib.contextmanager
    def released(self, durations: Durations) -> Iterator[None]:
        """Lets others time while this thread, which shares the GPU, does not need it. Nothing happens where it does not share it."""
        if (hold := self._holds.shared) is None:
            yield
            return
        hold.release()
        try:
            yield
        finally:
            with durations.part(WAITING):
                hold.acquire()

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """A context in which Triton compiles a kernel of the judge's own, which takes a second: meanwhile others may time."""
        if self._holds.shared is not None and not accelerator.is_capturing():
            accelerator.synchronize()  # or they would time beside what was launched before
        with self.released(Durations()):
            yield

    def time_plan(
        self,
        judging: Judging,
        plan: Plan,
        sizes: Mapping[str, int],
        rules: Sequence[Rule],
        *,
        compiled: bool = True,
    ) -> str:
        """Times a case at these sizes, and notes the times; for ``compiled`` see ``time``.

        Returns:
            Whose process there was too little memory for; nothing if there was enough.
        """
        try:
            timings = self.time(judging, plan.case.name, sizes, rules, compiled=compiled)
        except OutOfMemory:
            return "the candidate's process"
        except torch.OutOfMemoryError:
            return JUDGE
        note = "; ".join(filter(None, [plan.note(sizes), "" if compiled else NOT_COMPILED]))
        judging.findings.timing.extend(replace(timing, note=note) for timing in timings)
        return ""

    def time(
        self,
        judging: Judging,
        case: str,
        sizes: Mapping[str, int],
        rules: Sequence[Rule],
        *,
        compiled: bool = True,
    ) -> tuple[Timing, ...]:
        """Times one case at these sizes: its forward pass, and both passes in one for a target with ``backward=True``.

        ``compiled`` says whether what ``torch.compile`` makes of the original is timed, too.

        Raises:
            Decision: an output is wrong, the clocks do not agree, or the worker ran out of memory
                (``OutOfMemory``).
            OriginalError: the original fails.
            WorkerDied: the worker process ended.
            torch.OutOfMemoryError: the judge ran out of memory.
        """
        references, durations = judging.references, judging.findings.durations
        first = self._seed + SEED
        probes = [Probe(case, tuple(sizes.items()), first + i) for i in range(2)]
        prepared = []
        for probe in probes:
            with self.sharing(), durations.part("reference outputs"):
                prepared.append(references.prepare(probe))
        with self.sharing(), durations.part("calls"):
            run = run_probe(judging, prepared[0])
        for rule in rules:
            with self.sharing(), durations.part("checks"):
                rule.check_run(run)
        original = self._compiled(judging, prepared[0]) if compiled else None
        with self._alone(durations):
            uploaded = upload(judging, prepared[0])
            run = ProbeRun(judging, prepared[0], uploaded, {})
            for rule in rules:
                rule.check_device_work(run)
            calls = forward_pass(prepared[0], original)
            forward = self._timed(run, prepared, rules, calls)
        if not references.subject.case(case).domain.grad:
            return (forward,)
        gradients = []
        for each in prepared:
            with self.sharing(), durations.part("reference outputs"):
                gradients.append(references.gradients(each))
        if gradients[0].form != gradients[1].form:  # which of them flow depends on values
            prepared, gradients = prepared[:1], gradients[:1]
        original = self._compiled(judging, prepared[0], gradients[0]) if compiled else None
        with self._alone(durations):
            backward = upload_backward(judging, prepared[0], gradients[0], gradients[0].names)
            run = ProbeRun(judging, prepared[0], backward.uploaded, {})
            calls = forward_and_backward(prepared[0], original, gradients[0])
            return forward, self._timed(run, prepared, rules, calls, list(map(backward.of, gradients)))

    def time_alone(self, judging: Judging, case: str, sizes: Mapping[str, int]) -> CaseTime:
        """Times one case of a candidate that is not judged: nothing is compared, with outputs or baselines.

        For a target with ``backward=True`` both passes are timed.

        Raises:
            Decision: it fails.
            OriginalError: the original fails.
            WorkerDied: the worker process ended.
            torch.OutOfMemoryError: the judge ran out of memory.
        """
        references, durations = judging.references, judging.findings.durations
        backwards: list[Backward] = []
        with self.sharing():
            with durations.part("inputs"):
                prepared = references.prepare_to_time(Probe(case, tuple(sizes.items()), PUBLIC_SEED))
            with durations.part("calls"):
                uploaded = run_probe(judging, prepared).uploaded
            calls = forward_pass(prepared, None)
            if references.subject.case(case).domain.grad:
                with durations.part("inputs"):
                    gradients = references.gradients_to_time(prepared)
                backwards = [upload_backward(judging, prepared, gradients, gradients.names)]
                uploaded = backwards[0].uploaded
                with durations.part("calls"):  # compiles, beside others
                    call(judging, uploaded, prepared, judging.first_run, grad=backwards[0].request)
                calls = forward_and_backward(prepared, None, gradients)
        with self._alone(durations):
            flush_us = self._clock.flush_us()
            runner = CandidateRunner(judging, uploaded, [prepared], lambda *call: None, flush_us, backwards)
            return measure_alone(runner, self._measured_roofline(), calls)

    @contextlib.contextmanager
    def _alone(self, durations: Durations) -> Iterator[None]:
        """Holds the GPU alone, to time on it."""
        with contextlib.ExitStack() as stack:
            with durations.part(WAITING):
                stack.enter_context(hold_gpu(self._gpu_uuid, alone=True))
            stack.enter_context(durations.part("timing"))
            yield

    def _compiled(
        self, judging: Judging, prepared: PreparedProbe, gradients: Gradients | None = None
    ) -> Callable[..., Any] | None:
        """Returns what ``torch.compile`` makes of the original, see ``CompiledOriginals.compile``."""
        with judging.findings.durations.part("torch.compile"):
            return judging.references.compiled.compile(prepared, self.sharing, gradients)

    def _timed(
        self,
        run: ProbeRun,
        prepared: Sequence[PreparedProbe],
        rules: Sequence[Rule],
        original: OriginalCalls,
        backwards: Sequence[Backward] = (),
    ) -> Timing:
        """Times a candidate beside the original; the first of the prepared probes is uploaded."""
        roofline, flush_us = self._measured_roofline(), self._clock.flush_us()
        checks = _Checks(tuple(rules), RightBefore(run.judging.policy.slice_bytes))
        runner = CandidateRunner(run.judging, run.uploaded, prepared, checks, flush_us, backwards)
        measured = measure(runner, roofline, self._clock, original)
        for rule in rules:
            rule.check_measurement(run, measured)
        return measured.timing

    def _measured_roofline(self) -> Roofline:
        """Returns the GPU's roofline, measured once, by a thread that holds the GPU alone."""
        if self._roofline is None:
            accelerator.empty_cache()
            self._roofline = measure_roofline(self._clock)
        return self._roofline


class _Holds(threading.local):
    """What a thread of the judge holds."""

    shared: Hold | None = None
    """The GPU, shared with others that check."""


@dataclass(frozen=True)
class _Checks:
    """Applies every rule to a timed call."""

    rules: tuple[Rule, ...]
    right: RightBefore

    def __call__(self, run: ProbeRun, looped: bool, backward: Backward | None) -> None:
        for rule in self.rules:
            rule.check_timed_call(TimedCall(run, looped, self.right, backward))
