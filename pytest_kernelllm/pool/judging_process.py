"""A process of the pool: one warm judge on one GPU; or, while others judge, what writes and renders with the CPU alone.

``CUDA_VISIBLE_DEVICES`` names the one GPU, so it is always device 0.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from kernelllm_judge.candidate import Speed, criteria_of, judge_candidate, measure_completion
from kernelllm_judge.constructors import Constructors
from kernelllm_judge.core import accelerator
from kernelllm_judge.core.measured import Measured
from kernelllm_judge.core.records import Candidate, Verdict
from kernelllm_judge.core.shorten import whole
from kernelllm_judge.core.spans import JUDGING, Recorder
from kernelllm_judge.core.stages import InStage, unwatched
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.judging import Judge
from kernelllm_judge.launching import ServerFailed, ServerHost
from kernelllm_judge.shared.channel import Channel, ChannelClosed
from kernelllm_judge.target.live import LiveTarget
from kernelllm_judge.tool.example import with_example
from pytest_kernelllm.pool.messages import (
    ErrorReply,
    Handshake,
    JudgeRequest,
    MeasuredReply,
    MeasureRequest,
    PoolReply,
    Request,
    VerdictReply,
)
from pytest_kernelllm.pool.pool_process import STAGE, UNFIT
from pytest_kernelllm.pool.targets import TargetLoader

if TYPE_CHECKING:
    from types import FrameType

PR_SET_PDEATHSIG = 1

SOON = 0.2
"""Seconds in which a job arrives where one waits."""


class TargetJudge(TargetLoader):
    """Loads targets, writes, renders and judges candidates for them, with one judge.

    Keeps the last targets, so that their reference outputs are computed once.
    """

    def __init__(
        self,
        judge: Judge,
        in_stage: InStage = unwatched,
        recorder: Recorder | None = None,
        send: Callable[[dict[str, Any]], None] = lambda part: None,
    ) -> None:
        """``judge`` is started and ended by the caller; ``in_stage`` and ``recorder`` are its own."""
        super().__init__(judge.environment, judge.constructors, in_stage, recorder, send)
        self._judge = judge

    def fit_for(self, request: Request) -> bool:
        """Whether nothing that an earlier reference did to this process can change this reply."""
        return super().fit_for(request) and self._cuda_works()

    def answer(self, request: Request) -> PoolReply:
        """Answers a request to judge, to measure or to prepare."""
        if isinstance(request, JudgeRequest):
            judged = self.judged(request)
            return VerdictReply(judged) if isinstance(judged, Verdict) else judged
        if isinstance(request, MeasureRequest):
            measured = self.measured(request)
            return MeasuredReply(measured) if isinstance(measured, Measured) else measured
        return super().answer(request)

    def judged(self, request: JudgeRequest) -> Verdict | ErrorReply:
        """Judges one candidate. Where the reference or the judge itself fails, the verdict is inconclusive."""
        try:
            self.start_cuda()
            live = self.live(request)
            if isinstance(live, str):
                return ErrorReply(live) if request.in_project else self._unjudged(live)
            speed = Speed(request.timing, request.min_speedup, request.baseline)
            with self._recorder.span(JUDGING, request.target.id):
                if request.in_project:
                    return _judge_source(self._judge, live, request, speed)
                return judge_candidate(self._judge, live, request.text, request.note, speed)[1]
        except ServerFailed as error:
            return ErrorReply(str(error)) if request.in_project else self._unjudged(str(error))
        except (Exception, SystemExit) as error:  # a run of thousands goes on
            return self._unjudged(f"the judge failed: {type(error).__name__}: {whole(error)}")

    def measured(self, request: MeasureRequest) -> Measured | ErrorReply:
        """Renders and times one completion."""
        try:
            self.start_cuda()
            live = self.live(request)
            if isinstance(live, str):
                return ErrorReply(live)
            with self._recorder.span("measuring", request.target.id):
                return measure_completion(self._judge, live, request.completion)
        except (Exception, SystemExit) as error:
            return Measured(error=f"measuring failed: {type(error).__name__}: {whole(error)}")

    def _unjudged(self, reason: str) -> Verdict:
        return Verdict("inconclusive", "render", reason, "", self._judge.environment)

    def start_cuda(self) -> None:
        """Creates the CUDA context, which takes seconds, before anything else would."""
        if accelerator.is_gpu(self._judge.device) and not accelerator.in_use():
            with self._recorder.span("CUDA context"):
                accelerator.synchronize()

    def _cuda_works(self) -> bool:
        """Whether CUDA still answers here: an illegal access by a reference breaks it for good."""
        if not accelerator.in_use():
            return True
        try:
            torch.ones(1, device=accelerator.gpu()).item()
        except RuntimeError:
            return False
        return True


class _Terminated(BaseException):
    """The pool asked this process to end."""


class StageReports:
    """Reports to the pool in which stage each thread is; sends all that this process sends."""

    def __init__(self, channel: Channel) -> None:
        """Answers what arrives over ``channel``."""
        self._channel = channel
        self._sending = threading.Lock()
        self._here = threading.local()

    @contextlib.contextmanager
    def in_stage(self, stage: str) -> Iterator[None]:
        """Reports that this thread is in a stage, and afterwards that it is where it was before."""
        outer = getattr(self._here, "stage", "")
        self._enter(stage)
        try:
            yield
        finally:
            self._enter(outer)

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message; several threads may."""
        with self._sending:
            self._channel.send(message)

    def _enter(self, stage: str) -> None:
        self._here.stage = stage
        self.send({STAGE: stage, "thread": threading.get_ident()})


@contextlib.contextmanager
def _opened(
    start: Handshake, reports: StageReports, recorder: Recorder, host: ServerHost
) -> Iterator[TargetLoader]:
    isolation = probe_isolation(start.environment.device if start.judges else "cpu", start.isolation)
    if not start.judges:  # what crashes in a compiler ends this process, and no judge
        with Constructors(isolation, host=host) as constructors:
            yield TargetLoader(start.environment, constructors, reports.in_stage, recorder, reports.send)
        return
    with Judge(
        start.environment,
        deadline=start.deadline,
        gpu_uuid=start.gpu_uuid,
        isolation=isolation,
        gpu_memory=start.gpu_memory,
        in_stage=reports.in_stage,
        recorder=recorder,
        host=host,
    ) as judge:
        yield TargetJudge(judge, reports.in_stage, recorder, reports.send)


def _prepare(loader: TargetLoader, channel: Channel, recorder: Recorder) -> None:
    """Does what takes long the first time, as long as nothing is asked for."""
    if channel.waits(SOON):
        return
    if isinstance(loader, TargetJudge):
        loader.start_cuda()
    if not channel.waits():
        with recorder.span("compiling something"):
            torch.compile(torch.sin)(torch.ones(8, device=accelerator.gpu()))


def _judge_source(judge: Judge, live: LiveTarget, request: JudgeRequest, speed: Speed) -> Verdict:
    """Judges a kernel module as it stands, by what its project states about the target."""
    criteria = criteria_of(live, speed)
    if request.tolerance is not None:
        criteria = replace(criteria, tolerance=request.tolerance)
    if live.options.min_speedup is not None:
        criteria = replace(criteria, min_speedup=live.options.min_speedup)
    candidate = Candidate(live.target.id, request.text, "files", note=request.note)
    criteria = replace(criteria, adopted=request.adopted)
    verdict = judge.judge(candidate, criteria)
    return with_example(judge, criteria, request.text, verdict) if request.example else verdict


def main(asked: float, descriptors: Sequence[int]) -> None:
    """Serves until the pool closes its end or sends SIGTERM, or until a request needs a fresh process.

    Args:
        asked: when the pool asked for this process, in seconds since the epoch.
        descriptors: of a socket to the pool, and of one to what forks the servers of its workers.
    """
    faulthandler.enable()  # to the process's log, where the pool reads it
    signal.signal(signal.SIGTERM, _terminate)
    # Also where the command itself is killed.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    pool, servers = (socket.socket(fileno=each) for each in descriptors)
    channel, host = Channel(pool), ServerHost(servers)
    with contextlib.suppress(_Terminated, ChannelClosed):
        forked = time.time()
        # Torch has read the variables of the process that this one was forked from.
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        start = Handshake.from_json(channel.receive())
        recorder = Recorder(start.name)
        recorder.add("importing torch", "", asked, forked)
        reports = StageReports(channel)
        with _opened(start, reports, recorder, host) as loader:
            recorder.add("starting the judge", "", forked, time.time())
            reports.send({"ready": True})
            if start.judges and start.environment.on_gpu:
                _prepare(loader, channel, recorder)
            try:
                reply: dict[str, Any] = {}
                while UNFIT not in reply:
                    reply = loader.reply(channel.receive())
                    reports.send(reply)
            finally:
                # From here on it ends its own processes, and must not be interrupted.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Terminated
