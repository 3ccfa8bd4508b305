"""Assembles samples from the pieces in which they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pytest_kernelllm.models.endpoint.wire import Piece, Wire
from pytest_kernelllm.models.protocol import Finish
from pytest_kernelllm.web.faults import Fault


@dataclass
class Text:
    """One sample as far as it has arrived."""

    parts: list[str] = field(default_factory=list)
    whole: str | None = None
    finish: Finish | None = None
    tokens: int = 0
    prompt_tokens: int = 0
    thoughts: list[str] = field(default_factory=list)
    cost: float | None = None
    note: str = ""

    @property
    def text(self) -> str:
        """The whole text."""
        return self.whole if self.whole is not None else "".join(self.parts)

    @property
    def length(self) -> int:
        """Characters of text and reasoning."""
        return len(self.text) + sum(map(len, self.thoughts))

    def add(self, piece: Piece) -> None:
        """Appends a piece."""
        self.parts.append(piece.text)
        self.thoughts.append(piece.reasoning)
        self.note = piece.note or self.note
        self.whole = piece.whole if piece.whole is not None else self.whole
        self.finish = piece.finish or self.finish
        self.tokens = piece.tokens or self.tokens
        self.prompt_tokens = piece.prompt_tokens or self.prompt_tokens


class Reading:
    """The samples of one request. Each is yielded once, with its index, when it is complete."""

    def __init__(self, n: int) -> None:
        """Expect ``n`` samples; further ones are ignored."""
        self._open = {choice: Text() for choice in range(n)}
        self._tokens = 0
        self._prompt_tokens = 0
        self._cost: float | None = None

    def add(self, piece: Piece) -> Iterator[tuple[int, Text]]:
        """Yields the sample that this piece completes, if its tokens are already counted."""
        self._prompt_tokens = piece.prompt_tokens or self._prompt_tokens
        if piece.choice is None:
            self._tokens = piece.tokens or self._tokens
            self._cost = piece.cost if piece.cost is not None else self._cost
        elif piece.choice in self._open:
            text = self._open[piece.choice]
            text.add(piece)
            if text.finish and text.tokens:
                yield piece.choice, self._open.pop(piece.choice)

    def end(self) -> Iterator[tuple[int, Text]]:
        """Yields the other complete samples; tokens and costs stated together are divided by length of text."""
        complete = {choice: text for choice, text in self._open.items() if text.finish}
        length = sum(text.length for text in complete.values())
        for choice, text in complete.items():
            share = text.length / length if length else 1 / len(complete)
            text.cost = None if self._cost is None else self._cost * share
            text.tokens = text.tokens or round(self._tokens * share)
            text.prompt_tokens = text.prompt_tokens or self._prompt_tokens
            yield choice, text


def read(wire: Wire, event: object) -> list[Piece]:
    """Returns the pieces in an event.

    Raises:
        Fault: the event reports an error, or does not follow the protocol.
    """
    try:
        pieces = list(wire.pieces(event))
        if not all(
            isinstance(text, str) for each in pieces for text in (each.text, each.reasoning, each.whole or "")
        ):
            raise TypeError("a text is of another type")
        return pieces
    except (TypeError, KeyError, ValueError, AttributeError, IndexError):
        raise Fault("sent JSON that does not follow its protocol", retryable=True) from None
