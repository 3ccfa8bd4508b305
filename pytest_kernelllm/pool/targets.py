"""Targets in a process of the pool: loaded, written for, rendered."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernelllm_judge.constructors import Constructors
from kernelllm_judge.core.records import Completion, Environment
from kernelllm_judge.core.spans import Recorder
from kernelllm_judge.core.stages import InStage, unwatched
from kernelllm_judge.launching import ServerFailed
from kernelllm_judge.render.errors import RenderError, unexpected
from kernelllm_judge.render.render import render
from kernelllm_judge.target.live import LiveTarget, TargetError, load_target
from kernelllm_runtime.pins.settings import CONVOLUTION_PRECISION, PRODUCT_PRECISION, setting
from pytest_kernelllm.pool.jobs import KEPT_GROUPS
from pytest_kernelllm.pool.messages import (
    ErrorReply,
    PoolReply,
    PrepareReply,
    PrepareRequest,
    Rendering,
    Request,
    request_of,
    unpacked,
)
from pytest_kernelllm.pool.pool_process import PART, UNFIT


@dataclass(frozen=True)
class _Loaded:
    """A target that was loaded, or why it cannot be, with ``sys.path`` as it was then."""

    live: LiveTarget | str
    path: tuple[str, ...]


class TargetLoader:
    """Loads targets, and writes and renders candidates for them. Keeps the last ones."""

    def __init__(
        self,
        environment: Environment,
        constructors: Constructors,
        in_stage: InStage = unwatched,
        recorder: Recorder | None = None,
        send: Callable[[dict[str, Any]], None] = lambda part: None,
    ) -> None:
        """Makes a loader; a target is loaded by the first request for it.

        Replies have the recorder's spans; ``send`` gets what is written before the others are.
        """
        self._environment = environment
        self._constructors = constructors
        self._in_stage = in_stage
        self._recorder = recorder or Recorder()
        self._send = send
        self._loaded: OrderedDict[str, _Loaded] = OrderedDict()
        self._last = self._root = ""
        """The last target that was loaded, and its root."""
        self._settings_changed = self._helpers = False
        """Whether loading it changed PyTorch's settings, or brought modules beside it."""
        self._path = list(sys.path)

    def fit_for(self, request: Request) -> bool:
        """Whether nothing that an earlier reference did to this process can change this reply."""
        if request.reference != self._last and self._settings_changed:
            return False
        return request.root == self._root or not self._helpers

    def reply(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers a message: a request's JSON, or that of ``UNFIT`` where another process must answer it."""
        request = request_of(message)
        if not self.fit_for(request):
            return {UNFIT: True}
        answer = self.answer(request)
        return replace(answer, spans=self._recorder.take()).to_json()

    def answer(self, request: Request) -> PoolReply:
        """Answers a request to prepare a target; judging processes answer others as well."""
        assert isinstance(request, PrepareRequest)
        return self.prepared(request)

    def prepared(self, request: PrepareRequest) -> PrepareReply | ErrorReply:
        """Loads a target, and writes and renders what is asked for."""
        try:
            live = self.live(request)
            if isinstance(live, str):
                return ErrorReply(live)
            on_gpu = self._environment.on_gpu
            renderings: list[Rendering] = []
            for completion in self._completions(live, request):
                with self._recorder.span("rendering", request.target.id):
                    renderings.append(_rendering(completion, live, self._constructors, on_gpu))
                self._send({PART: renderings[-1].to_json()})
            return PrepareReply(tuple(renderings), live.notes)
        except ServerFailed as error:
            return ErrorReply(str(error))
        except (Exception, SystemExit) as error:
            return ErrorReply(f"{request.target.id}: {unexpected('Preparing', 'target', error)}")

    def live(self, request: Request) -> LiveTarget | str:
        """Returns the target, ready to be called; or the sentence that says why not."""
        if request.reference not in self._loaded:
            while len(self._loaded) >= KEPT_GROUPS:
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

    def _completions(self, live: LiveTarget, request: PrepareRequest) -> Iterator[Completion]:
        """Yields what Inductor writes, each when it is written, and what is to be rendered only."""
        if request.indices:
            # Inductor takes longer to import than everything else here, and most processes write nothing.
            with self._recorder.span("importing Inductor"):
                from pytest_kernelllm.generate.inductor.cases import completions
                from pytest_kernelllm.generate.inductor.device import gpu_for
                from pytest_kernelllm.generate.inductor.variants import VARIANTS
            written = completions(live, gpu_for(self._environment.arch), VARIANTS, request.indices)
            while (completion := self._next(written, request)) is not None:
                yield completion
        yield from request.completions

    def _next(self, written: Iterator[Completion], request: PrepareRequest) -> Completion | None:
        with self._recorder.span("writing", request.target.id):
            return next(written, None)

    def _load(self, request: Request) -> LiveTarget | str:
        try:
            with self._recorder.span("loading", request.target.id):
                inputs = unpacked(request.inputs)
                return load_target(Path(request.root), request.target, inputs, in_stage=self._in_stage)
        except TargetError as error:
            return str(error)


def _global_settings() -> tuple[object, ...]:
    """PyTorch's global settings that a file may change for everybody by being imported or built."""
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        *map(setting, (CONVOLUTION_PRECISION, PRODUCT_PRECISION)),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_grad_enabled(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.enabled,
    )


def _rendering(
    completion: Completion, live: LiveTarget, constructors: Constructors, on_gpu: bool
) -> Rendering:
    try:
        return Rendering(completion, render(completion, live, constructors, on_gpu=on_gpu))
    except RenderError as error:
        return Rendering(completion, None, str(error))


def _brought_helpers(root: str, known: set[str]) -> bool:
    """Whether a reference imported files beside it, whose names a reference elsewhere may use for its own."""
    files = (getattr(sys.modules[name], "__file__", None) for name in set(sys.modules) - known)
    beside = [file for file in files if file and Path(file).is_relative_to(root)]
    return len(beside) > 1
