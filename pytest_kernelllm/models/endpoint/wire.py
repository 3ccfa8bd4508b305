"""The interface of a protocol: how to send a prompt to a server, and how to read its answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_kernelllm.models.protocol import Finish, Prompt, Sampling


@dataclass(frozen=True)
class Piece:
    """A part of a server's answer."""

    choice: int | None = 0
    """Index of the sample among those of the request; None if the piece is about all of them."""
    text: str = ""
    """Text that continues the earlier pieces."""
    whole: str | None = None
    """The sample's whole text, if the server repeats it at the end."""
    finish: Finish | None = None
    """Why the sample ended; None while it is incomplete."""
    tokens: int = 0
    """Generated tokens of the sample, or of all samples."""
    prompt_tokens: int = 0
    reasoning: str = ""
    """What the model thinks, continuing the earlier pieces."""
    cost: float | None = None
    """US dollars for all samples of the request, if the server states it or its prices."""
    note: str = ""
    """Why the sample is no usable answer, in one clause."""


@dataclass(frozen=True)
class Count:
    """The length of a prompt by a server's count."""

    tokens: int
    context: int = 0
    """Most tokens of prompt and answer together; 0 if unknown."""


class Wire(Protocol):
    """A protocol with the addresses of one server."""

    @property
    def url(self) -> str:
        """The address that prompts are posted to."""

    @property
    def many(self) -> bool:
        """Whether one request may ask for several samples."""

    @property
    def chats(self) -> bool:
        """Whether prompts are conversations."""

    def body(self, prompt: Prompt, sampling: Sampling, n: int, seed: int) -> dict[str, Any]:
        """Returns the body of a request that is answered by a stream of events."""

    def pieces(self, event: Any) -> Iterator[Piece]:
        """Yields the pieces in an event.

        Raises:
            Fault: the event reports an error.
            TypeError, KeyError, ValueError, AttributeError: the event does not follow the protocol.
        """

    def without(self, reason: str, body: Mapping[str, Any]) -> tuple[Wire, str] | None:
        """Returns this protocol without the parameter of ``body`` that a server does not take, and that parameter's name.

        Args:
            reason: why the server refused ``body``.
            body: a request's.

        Returns:
            None if ``reason`` is about something else.
        """

    def count(self, prompt: Prompt) -> tuple[str, dict[str, Any]] | None:
        """Returns address and body of a request that counts the tokens of ``prompt``; None if there is none."""

    def counted(self, reply: Any) -> Count | None:
        """Reads the answer to such a request."""


def seed_of(sampling: Sampling, indices: Sequence[int]) -> int:
    """Returns the seed of a request for these samples, below 2**31.

    A sample that is requested alone always has the same seed; otherwise the seed depends on all of the samples.
    """
    text = f"{sampling.seed}:{','.join(map(str, indices))}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def number(found: Mapping[str, Any], *keys: str) -> int:
    """Returns the first of these entries that is a positive integer, or 0."""
    for key in keys:
        value = found.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
