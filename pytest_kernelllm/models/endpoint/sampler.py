"""Requests many samples of many prompts from one server, concurrently and with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from kernelllm_judge.render.reasoning import split_reasoning
from pytest_kernelllm.models.endpoint.openai import OpenAi
from pytest_kernelllm.models.endpoint.wire import Piece, seed_of
from pytest_kernelllm.models.protocol import Answer, Ask, Finish, Prompt, Sampling
from pytest_kernelllm.web.faults import Fault
from pytest_kernelllm.web.http import Http
from pytest_kernelllm.web.retry import Retry


@dataclass
class _Text:
    """One sample as far as it has arrived."""

    parts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    finish: Finish | None = None
    tokens: int = 0
    prompt_tokens: int = 0
    cost: float | None = None
    note: str = ""

    def add(self, piece: Piece) -> None:
        self.parts.append(piece.text)
        self.thoughts.append(piece.reasoning)
        self.finish = piece.finish or self.finish
        self.tokens = piece.tokens or self.tokens
        self.prompt_tokens = piece.prompt_tokens or self.prompt_tokens
        self.cost = piece.cost if piece.cost is not None else self.cost
        self.note = piece.note or self.note


class Sampler:
    """Requests samples; each is one request, with a seed of its own."""

    def __init__(
        self,
        http: Http,
        wire: OpenAi,
        shown: str,
        sampling: Sampling,
        retry: Retry,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Prepares; ``shown`` is the server's name in messages, ``report`` is told of parameters that it does not take."""
        self.wire = wire
        """The protocol, without what the server turned out not to take."""
        self._http = http
        self._shown = shown
        self._sampling = sampling
        self._retry = retry
        self._report = report
        self._down: Fault | None = None
        self._succeeded = False

    async def run(self, asks: Sequence[Ask], concurrency: int, emit: Callable[[Answer], None]) -> None:
        """Emits every requested sample, including failed ones; without sampling one answer stands for all of a prompt.

        Raises:
            Fault: nothing arrived, for a reason that applies to every sample.
        """
        gate = asyncio.Semaphore(max(1, concurrency))
        greedy = self._sampling.temperature == 0

        async def sample(position: int, ask: Ask, index: int) -> None:
            async with gate:
                answer = await self._answer(position, ask.prompt, index)
            emit(answer)
            for other in ask.indices[1:] if greedy else ():
                note = answer.note or f"no sampling: equal to sample {answer.index}"
                equal = replace(answer, index=other, tokens=0, prompt_tokens=0, seconds=0.0, cost=None)
                emit(replace(equal, note=note))

        try:
            async with asyncio.TaskGroup() as group:
                for position, ask in enumerate(asks):
                    for index in ask.indices[:1] if greedy else ask.indices:
                        group.create_task(sample(position, ask, index))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None

    async def stream(self, prompt: Prompt, index: int, emit: Callable[[str], None]) -> None:
        """Emits one sample piece by piece.

        Raises:
            Fault: the request fails, or breaks off after pieces were emitted, which is not retried.
        """
        await self._retry(lambda: self._request(prompt, index, emit))

    async def _answer(self, position: int, prompt: Prompt, index: int) -> Answer:
        started = self._retry.clock.now()
        try:
            if self._down:
                raise self._down
            text = await self._retry(lambda: self._request(prompt, index))
        except Fault as fault:
            self._down = fault if fault.fatal else self._down
            if fault.fatal and not self._succeeded:
                raise
            note = f"The endpoint {self._shown} {fault.reason}."
            seconds = self._retry.clock.now() - started
            return Answer(position, index, "", seconds=seconds, finish="failed", note=note)
        self._succeeded = True
        seconds = self._retry.clock.now() - started
        answer = "".join(text.parts)
        thoughts, answer = split_reasoning(answer) if self.wire.chats else ("", answer)
        thoughts = "".join(text.thoughts) or thoughts
        counts = text.tokens, text.prompt_tokens
        return Answer(
            position, index, answer, *counts, seconds, text.finish or "stop", text.note, text.cost, thoughts
        )

    async def _request(self, prompt: Prompt, index: int, show: Callable[[str], None] | None = None) -> _Text:
        body = self.wire.body(prompt, self._sampling, seed_of(self._sampling, index))
        text, shown = _Text(), False
        try:
            async with aclosing(self._http.events(self.wire.url, body)) as events:
                async for event in events:
                    for piece in self.wire.pieces(event):
                        text.add(piece)
                        if show is not None and piece.text:
                            show(piece.text)
                            shown = True
            if text.finish is None:
                raise Fault("ended an answer before it was complete", retryable=True)
        except Fault as fault:
            if text.finish is not None:  # nothing is missing
                return text
            if not shown and self._adapt(fault, body):
                return await self._request(prompt, index, show)
            fault.retryable = fault.retryable and not shown
            raise
        return text

    def _adapt(self, fault: Fault, body: Mapping[str, Any]) -> bool:
        """Returns whether a refused request is worth sending again without a parameter that the server does not take."""
        if fault.status not in (400, 422) or fault.fatal:
            return False
        found = self.wire.without(fault.reason, body)
        # Without a temperature, answers would be drawn.
        if found is None or (self._sampling.temperature == 0 and found[1] == "temperature"):
            return False
        if found[0] != self.wire:  # else another request found out meanwhile
            self.wire, name = found
            self._report(f"The endpoint {self._shown} does not take `{name}`: its own value applies.")
        return True
