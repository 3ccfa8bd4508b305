"""What a protocol is: how a prompt is put to a server, and how its answer is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_kernelllm.models.protocol import Finish, Sampling


@dataclass(frozen=True)
class Piece:
    """One thing that a server says while it answers."""

    choice: int | None = 0
    """Which of the samples asked for; None: it is about all of them."""
    text: str = ""
    """Goes on from the pieces before."""
    whole: str | None = None
    """All of the sample's text, where the server repeats it at the end."""
    finish: Finish | None = None
    """The sample is complete."""
    tokens: int = 0
    """New tokens: of the sample, or of all of them."""
    prompt_tokens: int = 0


@dataclass(frozen=True)
class Count:
    """What a server says about a prompt's length. 0: it does not say."""

    tokens: int
    context: int = 0
    """Tokens of prompt and answer together."""


class Wire(Protocol):
    """A protocol, pointed at one server."""

    @property
    def url(self) -> str:
        """Where prompts are posted."""

    @property
    def many(self) -> bool:
        """Whether several samples may be asked for in one request."""

    def body(self, prompt: str, sampling: Sampling, n: int, seed: int) -> dict[str, Any]:
        """What is posted, for an answer in a stream of events."""

    def pieces(self, event: Any) -> Iterator[Piece]:
        """What an event says.

        Raises:
            Fault: that something went wrong.
            TypeError, KeyError, ValueError, AttributeError: something that the protocol does not have.
        """

    def count(self, prompt: str) -> tuple[str, dict[str, Any]] | None:
        """Where to post what, to have the tokens of ``prompt`` counted."""

    def counted(self, reply: Any) -> Count | None:
        """The answer to that."""


def seed_of(sampling: Sampling, indices: Sequence[int]) -> int:
    """The seed of a request for these samples, below 2**31.

    A sample asked for by itself always has the same one; one of several depends on which they are.
    """
    text = f"{sampling.seed}:{','.join(map(str, indices))}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def number(found: Mapping[str, Any], *keys: str) -> int:
    """The first of these entries that is a positive whole number, or 0."""
    for key in keys:
        value = found.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
