"""What a generator is: anything that writes candidates for targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pytest_kernelllm.records import Completion, Target

if TYPE_CHECKING:
    from pytest_kernelllm.discover.live import LiveTarget


class GenerateError(RuntimeError):
    """A generator cannot work at all (missing extra, missing folder, no server); the text says what to do."""


@dataclass(frozen=True)
class Request:
    """Candidates wanted for one target."""

    target: Target
    samples: int
    """How many, counted from ``first``."""
    first: int
    """Index of the first one wanted; the ones before are already in the store."""
    live: Callable[[], LiveTarget]
    """Imports the user's code on the first call; generators that need no module never call it."""


class Generator(Protocol):
    """Writes candidates. ``generate`` takes many targets at once, so that a model can batch over them."""

    name: str

    def identity(self) -> str:
        """Everything that changes what is written (model, revision, sampling…): completions are cached under it.

        Must not import torch: it is asked for in runs in which everything is already known.
        """

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
        """Yield completions as they arrive, in any order over targets, by rising index within one.

        A target for which there is nothing to write gets one completion with empty text and a ``note``
        that says why in one line. Fewer than ``samples`` completions mean there are no more distinct ones.

        Raises:
            GenerateError: nothing can be generated for any target.
        """
