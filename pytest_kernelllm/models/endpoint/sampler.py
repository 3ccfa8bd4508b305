"""Requests many samples of many prompts from one server, concurrently and with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from pytest_kernelllm.models.endpoint.reading import Reading, Text, read
from pytest_kernelllm.models.endpoint.wire import Wire, seed_of
from pytest_kernelllm.models.protocol import Answer, Ask, Prompt, Sampling, split_reasoning
from pytest_kernelllm.web.faults import Fault
from pytest_kernelllm.web.http import Http
from pytest_kernelllm.web.retry import Retry


class Sampler:
    """Requests the samples of one call of ``LanguageModel.answers``."""

    def __init__(
        self,
        http: Http,
        wire: Wire,
        shown: str,
        sampling: Sampling,
        concurrency: int,
        retry: Retry,
        emit: Callable[[Answer], None],
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Prepare.

        Args:
            http: an open connection to the server.
            wire: its protocol.
            shown: its name in messages.
            sampling: how tokens are drawn.
            concurrency: requests at the same time.
            retry: retries failed requests.
            emit: called with each sample.
            report: called with a line if the server does not take a parameter.
        """
        self._http = http
        self.wire = wire
        """The protocol, without what the server turned out not to take."""
        self._report = report
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
        """Emits every requested sample, including failed ones.

        Raises:
            Fault: nothing arrived, for a reason that applies to every sample.
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
            return [indices[:1]]  # all of them are equal; `_give` copies
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
        """Sends one request. Samples that arrive are emitted and removed from ``pending``, even if it fails later."""
        requested = tuple(pending)
        body = self.wire.body(ask.prompt, self._sampling, len(requested), seed_of(self._sampling, requested))
        reading = Reading(len(requested))
        fault: Fault | None = None

        def give(ready: Iterable[tuple[int, Text]]) -> None:
            seconds = self._retry.clock.now() - started
            for choice, text in ready:
                index = requested[choice]
                pending.remove(index)
                self._give(_answer(position, index, text, seconds, chats=self.wire.chats), ask)

        try:
            async with aclosing(self._http.events(self.wire.url, body)) as events:
                async for event in events:
                    for piece in read(self.wire, event):
                        give(reading.add(piece))
        except Fault as found:
            fault = found
        give(reading.end())
        if len(pending) == len(requested):
            fault = fault or Fault("ended an answer before it was complete", retryable=True)
            if self._adapt(fault, body):
                await self._attempt(position, ask, pending, started)
                return
            if len(requested) > 1 and fault.status in (400, 422) and not fault.fatal:
                return  # the server may not accept `n`: the caller requests one at a time
        if fault and pending:
            raise fault

    def _adapt(self, fault: Fault, body: Mapping[str, Any]) -> bool:
        """Returns whether a refused request is worth sending again without a parameter that the server does not take."""
        found = adapted(self.wire, fault, body, self._sampling)
        if found is None:
            return False
        if found[0] != self.wire:  # else another request found out meanwhile
            self.wire, name = found
            self._report(f"The endpoint {self._shown} does not take `{name}`: its own value applies.")
        return True

    def _give(self, answer: Answer, ask: Ask) -> None:
        self._succeeded = True
        self._emit(answer)
        if self._sampling.temperature == 0:
            for index in ask.indices[1:]:
                note = answer.note or f"no sampling: equal to sample {answer.index}"
                self._emit(
                    replace(answer, index=index, tokens=0, prompt_tokens=0, seconds=0.0, note=note, cost=None)
                )

    def _fail(self, position: int, ask: Ask, pending: list[int], fault: Fault, started: float) -> None:
        seconds = self._retry.clock.now() - started
        failed = ask.indices if self._sampling.temperature == 0 else pending
        for index in failed:
            note = f"The endpoint {self._shown} {fault.reason}."
            self._emit(Answer(position, index, "", seconds=seconds, finish="failed", note=note))


def _answer(position: int, index: int, text: Text, seconds: float, *, chats: bool) -> Answer:
    thoughts, answer = split_reasoning(text.text) if chats else ("", text.text)
    thoughts = "".join(text.thoughts) or thoughts
    finish = text.finish or "stop"
    counts = text.tokens, text.prompt_tokens
    return Answer(position, index, answer, *counts, seconds, finish, text.note, text.cost, thoughts)


def adapted(wire: Wire, fault: Fault, body: Mapping[str, Any], sampling: Sampling) -> tuple[Wire, str] | None:
    """Returns a protocol without the parameter that a server refused, and its name; None if it refused something else."""
    if fault.status not in (400, 422) or fault.fatal:
        return None
    found = wire.without(fault.reason, body)
    greedy = sampling.temperature == 0  # without a temperature, answers would be drawn
    return None if found is None or (greedy and found[1] == "temperature") else found


async def pour(
    http: Http,
    wire: Wire,
    prompt: Prompt,
    sampling: Sampling,
    index: int,
    retry: Retry,
    emit: Callable[[str], None],
) -> None:
    """Emits one sample piece by piece.

    Raises:
        Fault: the request fails, or breaks off after pieces were emitted, which is not retried.
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

    try:
        await retry(attempt)
    except Fault as fault:
        found = adapted(wire, fault, body, sampling)
        if found is None:
            raise
        await pour(http, found[0], prompt, sampling, index, retry, emit)
