"""A judging process: one warm judge on one GPU, which gets its jobs from the pool.

Run as ``python -m pytest_kernelllm.pool.judging_process FD``. ``CUDA_VISIBLE_DEVICES`` names the one GPU, so it is always device 0.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pytest_kernelllm.core.records import Completion, Verdict
from pytest_kernelllm.core.stages import InStage, unwatched
from pytest_kernelllm.discover.live import LiveTarget, TargetError, load_target
from pytest_kernelllm.generate.render.errors import RenderError, unexpected
from pytest_kernelllm.generate.render.render import render
from pytest_kernelllm.judge.isolation.isolation import probe_isolation
from pytest_kernelllm.judge.judge import KEPT_TARGETS, Judge
from pytest_kernelllm.judge.launching import ServerFailed
from pytest_kernelllm.judge.shared.channel import Channel, ChannelClosed
from pytest_kernelllm.pool.candidate import Speed, judge_candidate, judge_source
from pytest_kernelllm.pool.messages import (
    ErrorReply,
    Handshake,
    JudgeRequest,
    PrepareReply,
    PrepareRequest,
    Rendering,
    request_of,
    unpacked,
)
from pytest_kernelllm.pool.pool_process import STAGE, UNFIT

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


@dataclass(frozen=True)
class _Loaded:
    """A target that was loaded, or why it cannot be, with ``sys.path`` as it was then."""

    live: LiveTarget | str
    path: tuple[str, ...]


class TargetJudge:
    """Loads targets, writes, renders and judges candidates for them, with one judge.

    Keeps the last targets, so that their reference outputs are computed once.
    """

    def __init__(self, judge: Judge, in_stage: InStage = unwatched) -> None:
        """``judge`` is started and ended by the caller; ``in_stage`` is its own."""
        self._judge = judge
        self._in_stage = in_stage
        self._loaded: OrderedDict[str, _Loaded] = OrderedDict()
        self._last = self._root = ""
        """The last target that was loaded, and its root."""
        self._settings_changed = self._helpers = False
        """Whether loading it changed PyTorch's settings, or brought modules beside it."""
        self._path = list(sys.path)

    def fit_for(self, request: JudgeRequest | PrepareRequest) -> bool:
        """Whether nothing that an earlier reference did to this process can change this reply."""
        if request.reference != self._last and self._settings_changed:
            return False
        if request.root != self._root and self._helpers:
            return False
        return self._cuda_works()

    def reply(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers a message: a request's JSON, or that of ``UNFIT`` where another process must answer it."""
        request = request_of(message)
        if not self.fit_for(request):
            return {UNFIT: True}
        if isinstance(request, PrepareRequest):
            return self.prepared(request).to_json()
        judged = self.judged(request)
        return {"verdict": judged.to_json()} if isinstance(judged, Verdict) else judged.to_json()

    def judged(self, request: JudgeRequest) -> Verdict | ErrorReply:
        """Judges one candidate. Where the reference or the judge itself fails, the verdict is inconclusive."""
        try:
            live = self._live(request)
            if isinstance(live, str):
                return ErrorReply(live) if request.in_project else self._unjudged(live)
            speed = Speed(request.timing, request.min_speedup, request.baseline)
            if request.in_project:
                return judge_source(self._judge, live, request, speed)
            return judge_candidate(self._judge, live, request.text, request.note, speed)[1]
        except ServerFailed as error:
            return ErrorReply(str(error)) if request.in_project else self._unjudged(str(error))
        except (Exception, SystemExit) as error:  # a run of thousands goes on
            text = " ".join(str(error).split())[:300]
            return self._unjudged(f"the judge failed: {type(error).__name__}: {text}")

    def prepared(self, request: PrepareRequest) -> PrepareReply | ErrorReply:
        """Loads a target, and writes and renders what is asked for."""
        try:
            live = self._live(request)
            if isinstance(live, str):
                return ErrorReply(live)
            on_gpu = self._judge.environment.device == "cuda"
            every = [*_written(live, request.indices), *request.completions]
            return PrepareReply(tuple(_rendering(each, live, on_gpu) for each in every))
        except (Exception, SystemExit) as error:
            return ErrorReply(f"{request.target.id}: {unexpected('Preparing', 'target', error)}")

    def _live(self, request: JudgeRequest | PrepareRequest) -> LiveTarget | str:
        """The target, ready to be called; or the sentence that says why not."""
        if request.reference not in self._loaded:
            while len(self._loaded) >= KEPT_TARGETS:
                self._loaded.popitem(last=False)
            sys.path[:] = self._path
            before, known = _global_settings(), set(sys.modules)
            live = self._load(request)
            self._loaded[request.reference] = _Loaded(live, tuple(sys.path))
            self._last, self._root = request.reference, request.root
            self._settings_changed = _global_settings() != before
            self._helpers = self._helpers or _brought_helpers(request.root, known)
        self._loaded.move_to_end(request.reference)
        loaded = self._loaded[request.reference]
        sys.path[:] = loaded.path
        return loaded.live

    def _load(self, request: JudgeRequest | PrepareRequest) -> LiveTarget | str:
        try:
            return load_target(
                Path(request.root), request.target, unpacked(request.inputs), in_stage=self._in_stage
            )
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


def _written(live: LiveTarget, indices: Sequence[int]) -> Iterable[Completion]:
    if not indices:
        return ()
    # Inductor takes longer to import than everything else here, and most processes write nothing.
    from pytest_kernelllm.generate.inductor.cases import completions
    from pytest_kernelllm.generate.inductor.variants import VARIANTS

    return completions(live, VARIANTS, indices)


def _rendering(completion: Completion, live: LiveTarget, on_gpu: bool) -> Rendering:
    try:
        return Rendering(completion, render(completion, live, on_gpu=on_gpu))
    except RenderError as error:
        return Rendering(completion, None, str(error))


def _brought_helpers(root: str, known: set[str]) -> bool:
    """Whether a reference imported files beside it, whose names a reference elsewhere may use for its own."""
    files = (getattr(sys.modules[name], "__file__", None) for name in set(sys.modules) - known)
    beside = [file for file in files if file and Path(file).is_relative_to(root)]
    return len(beside) > 1


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Terminated


def _serve(channel: Channel, reports: StageReports, judge: TargetJudge) -> None:
    """Answers what comes, until this process is no longer fit for it."""
    try:
        reply: dict[str, Any] = {}
        while UNFIT not in reply:
            reply = judge.reply(channel.receive())
            reports.send(reply)
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
            _serve(channel, reports, TargetJudge(judge, reports.in_stage))


if __name__ == "__main__":
    main(sys.argv)
