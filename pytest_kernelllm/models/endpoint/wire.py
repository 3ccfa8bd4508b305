"""The interface of a protocol: how to send a prompt to a server, and how to read its answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_kernelllm.models.protocol import Finish, Prompt, Sampling
from pytest_kernelllm.web.faults import Fault


@dataclass(frozen=True)
class Piece:
    """A part of a server's answer."""

    text: str = ""
    """Text that continues the earlier pieces."""
    whole: str | None = None
    """The whole text, if the server repeats it at the end."""
    finish: Finish | None = None
    """Why the sample ended; None while it is incomplete."""
    tokens: int = 0
    prompt_tokens: int = 0
    reasoning: str = ""
    """What the model thinks, continuing the earlier pieces."""
    cost: float | None = None
    """US dollars, if the server states it or its prices."""
    note: str = ""
    """Why the sample is no usable answer, in one clause."""


class Wire(Protocol):
    """A protocol with the addresses of one server."""

    @property
    def url(self) -> str:
        """The address that prompts are posted to."""

    @property
    def chats(self) -> bool:
        """Whether prompts are conversations."""

    def body(self, prompt: Prompt, sampling: Sampling, seed: int) -> dict[str, Any]:
        """Returns the body of a request that is answered by a stream of events."""

    def pieces(self, event: Any) -> Iterator[Piece]:
        """Yields the pieces in an event.

        Raises:
            Fault: the event reports an error.
            TypeError, KeyError, ValueError, AttributeError: the event does not follow the protocol.
        """

    def without(self, reason: str, body: Mapping[str, Any]) -> tuple[Wire, str] | None:
        """Returns this protocol without the parameter of ``body`` that a server does not take, and that parameter's name.

        None if ``reason``, for which the server refused ``body``, is about something else.
        """


def read(wire: Wire, event: object) -> list[Piece]:
    """Returns the pieces in an event.

    Raises:
        Fault: the event reports an error, or does not follow the protocol.
    """
    try:
        pieces = list(wire.pieces(event))
        texts = [text for each in pieces for text in (each.text, each.reasoning, each.whole or "")]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("a text is of another type")
        return pieces
    except (TypeError, KeyError, ValueError, AttributeError, IndexError):
        raise Fault("sent JSON that does not follow its protocol", retryable=True) from None


def seed_of(sampling: Sampling, index: int) -> int:
    """Returns the seed of a sample, below 2**31."""
    digest = hashlib.sha256(f"{sampling.seed}:{index}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def number(found: Mapping[str, Any], *keys: str) -> int:
    """Returns the first of these entries that is a positive integer, or 0."""
    for key in keys:
        value = found.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
