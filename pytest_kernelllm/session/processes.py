"""Targets in the judging processes: everything that runs a user's original does so there, not in this process."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.measured import Measured
from kernelllm_judge.core.records import ADOPTED, Candidate, Completion, Target, Verdict
from pytest_kernelllm.pool.engine import open_engine, open_writers
from pytest_kernelllm.pool.jobs import Engine, Parts, PoolFailed, PoolJob, ProcessLost
from pytest_kernelllm.pool.messages import (
    CannotPack,
    ErrorReply,
    JudgeRequest,
    MeasuredReply,
    MeasureRequest,
    PoolReply,
    PrepareReply,
    PrepareRequest,
    Rendering,
    Request,
    VerdictReply,
    message,
    packed,
    reply_of,
)
from pytest_kernelllm.pool.pool_process import HURRY, StageOverdue
from pytest_kernelllm.session.context import Context

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget

Rendered = Candidate | str
"""The candidate that a completion became, or why it became none."""


class PreparingLost(Exception):
    """A completion could not be written or rendered, for a reason that may pass; one sentence."""


class _NoReply(Exception):
    """A request has no reply; the text says why."""

    def __init__(self, why: str, *, lost: bool) -> None:
        super().__init__(why)
        self.lost = lost
        """Whether the processes that tried ended; else the target took too long."""


class TargetProcesses:
    """Loads targets, writes, renders and judges candidates in the pool. Thread-safe; starts its processes when needed.

    Where a target cannot be imported, built or called, or no judge can start, methods raise ``SessionError``; ``render`` raises
    ``PreparingLost``.
    """

    def __init__(self, context: Context, writers: Callable[[], bool] = lambda: False) -> None:
        """Prepares; processes start when there is work."""
        self._context = context
        self._live: dict[str, LiveTarget] = {}
        self._loaded: dict[str, SessionError | None] = {}
        """By ``Target.id``, whether it can be loaded."""
        self.notes: dict[str, None] = {}
        """What the owners of the loaded targets should know, in order."""
        self._rendered: dict[tuple[str, Completion], Rendered] = {}
        """What the inductor generator wrote, rendered in the process that wrote it."""
        self._lock = threading.Lock()
        self._importing = threading.RLock()
        self._engine: Engine | SessionError | None = None
        """Entered; or why it cannot be."""
        self._with_writers = writers
        self._writers: Engine | None = None
        """The engine that prepares; the one that judges where it has none of its own."""
        self._closed = False

    @property
    def slots(self) -> int:
        """How many jobs are done side by side, at most."""
        return self._open().slots

    @property
    def ahead(self) -> int:
        """How many targets should be worked on while another one is waited for, so that no process waits for work."""
        judging, writing = self._open(), self._open_writers()
        if judging.slots == 1:  # which belongs to the target that is waited for
            return 0
        return judging.slots - 1 + (min(writing.slots, judging.slots) if writing is not judging else 0)

    @property
    def side_by_side(self) -> int:
        """How many targets should be worked on at once, so that no process waits for work."""
        judging, writing = self._open(), self._open_writers()
        writers = writing.slots if writing is not judging else 0
        # A single process does one target after the other, so that none waits for what another one's original does.
        return 2 * judging.slots + writers if judging.slots + writers > 1 else 1

    def warm(self) -> None:
        """Starts the processes that will judge, on half of the cores, in the background."""
        with contextlib.suppress(SessionError):  # whoever has work for them is told
            self._check_installed()
            engine = self._open()
            engine.warm(min(engine.slots, len(os.sched_getaffinity(0)) // 2))

    def load(self, target: Target) -> None:
        """Checks that a target can be loaded, once, by doing so in a judging process."""
        self._raise_if_known(target)
        if target.id not in self._loaded:
            self._prepare(self._prepare_request(target))

    def live(self, target: Target) -> LiveTarget:
        """Imports a target in this process, for a generator that asks for it, once a judging process has."""
        self.load(target)
        with self._importing:
            if target.id not in self._live:
                self._context.progress(f"{target.name}: importing")
                from kernelllm_judge.target.live import TargetError, load_target

                inputs = self._context.overrides(target).inputs
                try:
                    self._live[target.id] = load_target(self._context.root, target, inputs=inputs)
                except TargetError as error:
                    raise SessionError(str(error)) from None
            return self._live[target.id]

    def error_of(self, target: Target) -> SessionError | None:
        """Returns why a target cannot be loaded; None if it can, or if nothing can be loaded here."""
        with contextlib.suppress(SessionError):
            self.load(target)
        return self._loaded.get(target.id)

    def write(self, target: Target, indices: Sequence[int]) -> Iterator[Completion]:
        """Yields completions of the ``inductor`` generator, each when it is written and rendered.

        Where a compiler ends the process, the last one failed and says so.
        """
        self._context.progress(f"{target.name}: inductor is writing candidates")
        parts: Parts = SimpleQueue()
        request = replace(self._prepare_request(target), indices=tuple(indices))
        left = dict.fromkeys(indices)
        with ThreadPoolExecutor(1, target.id) as thread:
            reply = thread.submit(self._prepare, request, parts)
            reply.add_done_callback(lambda _: parts.put(None))
            while (part := parts.get()) is not None:
                rendering = Rendering.from_json(part)
                # A process that took the place of one that was lost begins anew.
                if rendering.completion.index in left:
                    del left[rendering.completion.index]
                    yield self._noted(target, rendering)
        try:
            renderings = reply.result().renderings
        except PreparingLost as error:
            if left:
                yield Completion("inductor", min(left), "", "inductor", note=str(error), failed=True)
            return
        for rendering in renderings:
            if rendering.completion.index in left:
                yield self._noted(target, rendering)

    def _noted(self, target: Target, rendering: Rendering) -> Completion:
        self._rendered[target.id, rendering.completion] = rendering.candidate or rendering.refusal
        return rendering.completion

    def render(self, target: Target, completion: Completion) -> Rendered:
        """Returns the candidate, or why there is none."""
        known = self._rendered.get((target.id, completion))
        if known is None:
            self.load(target)
            reply = self._prepare(replace(self._prepare_request(target), completions=(completion,)))
            known = reply.renderings[0].candidate or reply.renderings[0].refusal
        return known

    def measure(self, target: Target, completion: Completion) -> Measured:
        """Times a completion, without judging it."""
        of = self._prepare_request(target)
        request = MeasureRequest(of.reference, of.root, of.target, of.inputs, completion)
        try:
            reply = self._reply(request)
        except _NoReply as error:
            return Measured(error=f"the measuring process was lost: {error}")
        if isinstance(reply, ErrorReply):
            raise SessionError(reply.error)
        assert isinstance(reply, MeasuredReply)
        return reply.measured

    def judge(self, target: Target, candidate: Candidate) -> Verdict:
        """Judges a candidate. Where no process lives to do so, the verdict is inconclusive."""
        self._raise_if_known(target)
        reference, inputs = self._reference(target)
        request = JudgeRequest(
            reference=reference,
            root=str(self._context.root.absolute()),
            target=target,
            text=candidate.source,
            note=candidate.note,
            min_speedup=self._context.settings.min_speedup,
            baseline=self._context.settings.baseline,
            timing=self._context.settings.timing,
            in_project=True,
            adopted=candidate.generator == ADOPTED.generator,
            inputs=inputs,
            tolerance=self._context.overrides(target).tolerance,
            example=self._context.settings.repair > 0,
        )
        try:
            reply = self._reply(request)
        except _NoReply as error:
            reason = f"the judging process was lost: {error}" if error.lost else str(error)
            environment = self._context.environment
            return Verdict("inconclusive", "correctness", reason, candidate.kernel_hash, environment)
        if isinstance(reply, ErrorReply):
            raise SessionError(reply.error)
        assert isinstance(reply, VerdictReply)
        return reply.verdict

    def interrupt(self) -> None:
        """Has all processes end within a second, and returns at once; whoever waits for them gets a ``SessionError``."""
        for engine in self._closing():
            engine.stop(HURRY)

    def close(self) -> None:
        """Ends all processes; whoever waits for them gets a ``SessionError``."""
        for engine in self._closing():
            engine.__exit__(None, None, None)

    def _closing(self) -> list[Engine]:
        with self._lock:
            self._closed = True
            opened = (self._writers, self._engine)
            return list({id(each): each for each in opened if isinstance(each, Engine)}.values())

    # ------------------------------------------------------------------ jobs

    def _prepare_request(self, target: Target) -> PrepareRequest:
        self._raise_if_known(target)
        reference, inputs = self._reference(target)
        return PrepareRequest(reference, str(self._context.root.absolute()), target, inputs)

    def _raise_if_known(self, target: Target) -> None:
        """Does not try again what ended processes, or took as long as it may."""
        if error := self._loaded.get(target.id):
            raise SessionError(str(error))

    def _prepare(self, request: PrepareRequest, parts: Parts | None = None) -> PrepareReply:
        try:
            reply = self._reply(request, parts)
        except _NoReply as error:
            sentence = f"its process was lost: {error}" if error.lost else str(error)
            if request.completions or request.indices:
                raise PreparingLost(sentence) from None
            raise self._unusable(request.target, f"{request.target.id}: {sentence}.") from None
        if isinstance(reply, ErrorReply):
            raise self._unusable(request.target, reply.error)
        assert isinstance(reply, PrepareReply)
        self._loaded[request.target.id] = None
        self.notes |= dict.fromkeys(reply.notes)
        return reply

    def _unusable(self, target: Target, sentence: str) -> SessionError:
        self._loaded[target.id] = error = SessionError(sentence)
        return error

    def _reply(self, request: Request, parts: Parts | None = None) -> PoolReply:
        """Has a request answered; raises ``_NoReply`` where no process lived to do so, or the target took too long."""
        self._check_installed()
        # Grouped by source: equal ones wait for each other's locks in the store.
        target, prepares = request.target, isinstance(request, PrepareRequest)
        job = PoolJob(target.id, target.source_hash, message(request), parts)
        try:
            reply = reply_of((self._open_writers() if prepares else self._open()).submit(job).result())
        except ProcessLost as error:
            if self._closed:  # a job that ``close`` gave up says nothing about its candidate
                raise SessionError("the session is over") from None
            raise _NoReply(str(error), lost=True) from None
        except StageOverdue as error:
            raise _NoReply(f"{error}; if it needs longer, raise `reference_deadline`", lost=False) from None
        except PoolFailed as error:
            raise SessionError(str(error)) from None
        self._context.recorder.extend(reply.spans)
        return reply

    def _check_installed(self) -> None:
        for name in ("torch", "triton"):
            if importlib.util.find_spec(name) is None:
                raise SessionError(
                    f"{name} is not installed, so nothing can be judged; run `pip install 'pytest-kernelllm[torch]'`."
                )

    def _reference(self, target: Target) -> tuple[str, str]:
        """The target's group, and what a conftest gives for its inputs, packed."""
        try:
            inputs = packed(self._context.overrides(target).inputs)
        except CannotPack as error:
            raise self._unusable(
                target,
                f"{target.id}: its inputs from pytest_kernelllm_inputs cannot be sent to a judging process: {error}.",
            ) from None
        parts = (self._context.root.absolute(), target.id, target.source_hash, inputs)
        return hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest(), inputs

    def _open(self) -> Engine:
        with self._lock:
            if self._engine is None:
                try:
                    self._engine = open_engine(self._context.settings, self._context.environment).__enter__()
                except PoolFailed as error:
                    self._engine = SessionError(str(error))
                else:
                    if self._closed:
                        self._engine.__exit__(None, None, None)
            if isinstance(self._engine, SessionError):
                raise SessionError(str(self._engine))
            return self._engine

    def _open_writers(self) -> Engine:
        engine = self._open()
        with_writers = self._writers is None and self._with_writers()
        with self._lock:
            if self._writers is None:
                own = (
                    open_writers(self._context.settings, self._context.environment) if with_writers else None
                )
                self._writers = own or engine
                if self._closed:
                    self._writers.__exit__(None, None, None)
            return self._writers
