"""Many samples of many prompts from one server, some at a time, each until it is there or given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace

from pytest_kernelllm.models.endpoint.reading import Reading, Text, read
from pytest_kernelllm.models.endpoint.wire import Wire, seed_of
from pytest_kernelllm.models.protocol import Answer, Ask, Sampling
from pytest_kernelllm.web.faults import Fault
from pytest_kernelllm.web.http import Http
from pytest_kernelllm.web.retry import Retry


class Sampler:
    """One call of ``LanguageModel.answers``."""

    def __init__(
        self,
        http: Http,
        wire: Wire,
        shown: str,
        sampling: Sampling,
        concurrency: int,
        retry: Retry,
        emit: Callable[[Answer], None],
    ) -> None:
        """Prepare.

        Args:
            http: an open connection to the server.
            wire: what it speaks.
            shown: what people call it.
            sampling: how tokens are drawn.
            concurrency: requests under way at once.
            retry: how failures are met.
            emit: takes each sample.
        """
        self._http = http
        self._wire = wire
        self._shown = shown
        self._sampling = sampling
        self._gate = asyncio.Semaphore(max(1, concurrency))
        self._retry = retry
        self._emit = emit
        self._down: Fault | None = None
        self._succeeded = False
        self.many = wire.many
        """Whether the server has honoured ``n`` so far."""

    async def run(self, asks: Sequence[Ask]) -> None:
        """Emit every sample asked for, failed ones too.

        Raises:
            Fault: nothing arrived, for a reason that holds for every other sample as well.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for position, ask in enumerate(asks):
                    for part in self._parts(ask.indices):
                        group.create_task(self._part(position, ask, part))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None

    def _parts(self, indices: tuple[int, ...]) -> list[tuple[int, ...]]:
        if not indices:
            return []
        if self._sampling.temperature == 0:
            return [indices[:1]]  # all of them are the same; `_give` copies
        return [indices] if self.many else [(index,) for index in indices]

    async def _part(self, position: int, ask: Ask, indices: tuple[int, ...]) -> None:
        pending = list(indices)
        async with self._gate:
            started = self._retry.clock.now()
            try:
                if self._down:
                    raise self._down
                await self._retry(lambda: self._attempt(position, ask, pending, started))
            except Fault as fault:
                self._down = fault if fault.fatal else self._down
                if fault.fatal and not self._succeeded:
                    raise
                self._fail(position, ask, pending, fault, started)
                return
        if pending:
            self.many = False
            for index in pending:
                self._group.create_task(self._part(position, ask, (index,)))

    async def _attempt(self, position: int, ask: Ask, pending: list[int], started: float) -> None:
        """One request. What arrives is emitted and taken off ``pending``, also when it breaks off later."""
        wanted = tuple(pending)
        body = self._wire.body(ask.prompt, self._sampling, len(wanted), seed_of(self._sampling, wanted))
        reading = Reading(len(wanted))
        fault: Fault | None = None

        def give(ready: Iterable[tuple[int, Text]]) -> None:
            seconds = self._retry.clock.now() - started
            for choice, text in ready:
                index = wanted[choice]
                pending.remove(index)
                answer = Answer(
                    position,
                    index,
                    text.text,
                    text.tokens,
                    text.prompt_tokens,
                    seconds,
                    text.finish or "stop",
                )
                self._give(answer, ask)

        try:
            async with aclosing(self._http.events(self._wire.url, body)) as events:
                async for event in events:
                    for piece in read(self._wire, event):
                        give(reading.add(piece))
        except Fault as found:
            fault = found
        give(reading.end())
        if len(pending) == len(wanted):
            fault = fault or Fault("ended an answer before it was complete", retryable=True)
            if len(wanted) > 1 and fault.status in (400, 422) and not fault.fatal:
                return  # perhaps it takes no `n`; one at a time will show
        if fault and pending:
            raise fault

    def _give(self, answer: Answer, ask: Ask) -> None:
        self._succeeded = True
        self._emit(answer)
        if self._sampling.temperature == 0:
            for index in ask.indices[1:]:
                note = f"no sampling: the same as sample {answer.index}"
                self._emit(replace(answer, index=index, tokens=0, prompt_tokens=0, seconds=0.0, note=note))

    def _fail(self, position: int, ask: Ask, pending: list[int], fault: Fault, started: float) -> None:
        seconds = self._retry.clock.now() - started
        failed = ask.indices if self._sampling.temperature == 0 else pending
        for index in failed:
            note = f"The endpoint {self._shown} {fault.reason}."
            self._emit(Answer(position, index, "", seconds=seconds, finish="failed", note=note))


async def pour(
    http: Http,
    wire: Wire,
    prompt: str,
    sampling: Sampling,
    index: int,
    retry: Retry,
    emit: Callable[[str], None],
) -> None:
    """Emit one sample piece by piece.

    Raises:
        Fault: it cannot be had, or breaks off: pieces that were emitted cannot be taken back.
    """
    body = wire.body(prompt, sampling, 1, seed_of(sampling, (index,)))

    async def attempt() -> None:
        written, finished = 0, False
        try:
            async with aclosing(http.events(wire.url, body)) as events:
                async for event in events:
                    for piece in read(wire, event):
                        text = piece.text or ((piece.whole or "") if not written else "")
                        if piece.choice == 0 and text:
                            written += len(text)
                            emit(text)
                        finished = finished or piece.finish is not None
            if not finished:
                raise Fault("ended an answer before it was complete", retryable=True)
        except Fault as fault:
            fault.retryable = fault.retryable and not written
            raise

    await retry(attempt)
