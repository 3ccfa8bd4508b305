"""A judging process of ``kernelllm verify``: one warm judge on one GPU, which gets its jobs from the pool.

Run as ``python -m pytest_kernelllm.pool.judging_process FD``. ``CUDA_VISIBLE_DEVICES`` names the one GPU, so it is always device 0.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pytest_kernelllm.core.records import Verdict
from pytest_kernelllm.core.stages import InStage, unwatched
from pytest_kernelllm.discover.live import LiveTarget, TargetError, load_target
from pytest_kernelllm.judge.isolation.isolation import probe_isolation
from pytest_kernelllm.judge.judge import Judge
from pytest_kernelllm.judge.shared.channel import Channel, ChannelClosed
from pytest_kernelllm.pool.candidate import Speed, judge_candidate
from pytest_kernelllm.pool.messages import Handshake, JudgeRequest
from pytest_kernelllm.pool.pool import UNFIT
from pytest_kernelllm.pool.pool_process import STAGE

if TYPE_CHECKING:
    from types import FrameType

PR_SET_PDEATHSIG = 1


class _Terminated(BaseException):
    """The pool asked this process to end."""


class StageReports:
    """Reports to the pool in which stage each thread is; sends all that this process sends."""

    def __init__(self, channel: Channel) -> None:
        """Takes over what is sent over ``channel``."""
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


class PairJudge:
    """Judges pairs with one judge, and keeps the last reference, so that its reference outputs are computed once."""

    def __init__(self, judge: Judge, in_stage: InStage = unwatched) -> None:
        """``judge`` is started and ended by the caller; ``in_stage`` is its own."""
        self._judge = judge
        self._in_stage = in_stage
        self._reference = ""
        self._live: LiveTarget | str = ""
        self._spent = False
        self._path = list(sys.path)

    def fit_for(self, request: JudgeRequest) -> bool:
        """Whether nothing that an earlier reference did to this process can change this verdict."""
        other = bool(self._reference) and request.reference != self._reference
        return not (self._spent and other) and self._cuda_works()

    def verdict(self, request: JudgeRequest) -> Verdict:
        """Judges one candidate. Where the reference or the judge itself fails, the verdict is inconclusive."""
        try:
            if request.reference != self._reference:
                sys.path[:] = self._path
                before, known = _global_settings(), set(sys.modules)
                self._reference, self._live = request.reference, self._load(request)
                self._spent = _global_settings() != before or _brought_helpers(request, known)
            if isinstance(self._live, str):
                return self._unjudged(self._live)
            speed = Speed(request.timing, request.min_speedup, request.baseline)
            return judge_candidate(self._judge, self._live, request.text, request.note, speed)[1]
        except (Exception, SystemExit) as error:  # a run of thousands goes on
            text = " ".join(str(error).split())[:300]
            return self._unjudged(f"the judge failed: {type(error).__name__}: {text}")

    def _load(self, request: JudgeRequest) -> LiveTarget | str:
        """The reference, ready to be called; or the sentence that says why not."""
        try:
            return load_target(Path(request.root), request.target, in_stage=self._in_stage)
        except TargetError as error:
            return str(error)

    def _unjudged(self, reason: str) -> Verdict:
        return Verdict("inconclusive", "render", reason, "", self._judge.environment)

    def _cuda_works(self) -> bool:
        """Whether CUDA still answers here: an illegal access by a reference breaks it for good."""
        if not torch.cuda.is_initialized():
            return True
        try:
            torch.ones(1, device="cuda").item()
        except RuntimeError:
            return False
        return True


def _global_settings() -> tuple[object, ...]:
    """PyTorch's global settings that a file may change for everybody by being imported or built."""
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_grad_enabled(),
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.enabled,
    )


def _brought_helpers(request: JudgeRequest, known: set[str]) -> bool:
    """Whether the reference imported files beside it, whose names another reference may use for its own."""
    files = (getattr(sys.modules[name], "__file__", None) for name in set(sys.modules) - known)
    beside = [file for file in files if file and Path(file).is_relative_to(request.root)]
    return len(beside) > 1


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Terminated


def _serve(channel: Channel, reports: StageReports, judge: PairJudge) -> None:
    """Judges what comes, until this process is no longer fit for it."""
    try:
        while judge.fit_for(request := JudgeRequest.from_json(channel.receive())):
            reports.send({"verdict": judge.verdict(request).to_json()})
        reports.send({UNFIT: True})
    finally:
        # From here on the judge ends its own processes, and must not be interrupted.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main(argv: list[str]) -> None:
    """Serves until the pool closes its end or sends SIGTERM."""
    signal.signal(signal.SIGTERM, _terminate)
    # Also where the command itself is killed.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    channel = Channel(socket.socket(fileno=int(argv[1])))
    with contextlib.suppress(_Terminated, ChannelClosed):
        start = Handshake.from_json(channel.receive())
        isolation = probe_isolation(start.environment.device, start.isolation)
        reports = StageReports(channel)
        with Judge(
            start.environment,
            deadline=start.deadline,
            gpu_uuid=start.gpu_uuid,
            isolation=isolation,
            gpu_memory=start.gpu_memory,
            in_stage=reports.in_stage,
        ) as judge:
            reports.send({"ready": True})
            _serve(channel, reports, PairJudge(judge, reports.in_stage))


if __name__ == "__main__":
    main(sys.argv)
