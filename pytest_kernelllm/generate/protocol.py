"""What a generator is: anything that writes candidates for targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pytest_kernelllm.core.records import Completion, Target

if TYPE_CHECKING:
    from pytest_kernelllm.discover.live import LiveTarget


class GenerateError(RuntimeError):
    """A generator cannot work at all (missing extra, missing folder, no server); the text says what to do."""


@dataclass(frozen=True)
class Request:
    """Candidates wanted for one target."""

    target: Target
    wanted: tuple[int, ...]
    """Indices of the samples that are not in the store yet, rising."""
    live: Callable[[], LiveTarget]
    """Imports the user's code on the first call; generators that need no module never call it."""


class Generator(Protocol):
    """Writes candidates. ``generate`` takes many targets at once, so that a model can batch over them.

    Generators of one's own derive from this class.
    """

    name: str
    """What people call it, in ids as well (``correctness[inductor-3]``): unique in a run."""
    batched: bool = False
    """Whether many targets at once come cheaper than one after the other."""
    on_gpu: bool = False
    """Whether it computes on this machine's GPUs, so that nothing can be timed meanwhile."""

    def identity(self) -> str:
        """Everything that changes what is written (model, revision, sampling…): completions are cached under it.

        Must not import torch: it is asked for in runs in which everything is already known.
        """

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
        """Yield completions as they arrive, in any order.

        A target for which there is nothing to write gets one completion with empty text and a ``note``
        that says why in one line. Fewer completions than were wanted mean there are no more distinct ones. Closing
        the iterator ends the work.

        Raises:
            GenerateError: nothing can be generated for any target.
        """

    def stream(self, request: Request) -> Iterator[str | Completion]:
        """Yield the first sample wanted in pieces while it is written, and then whole; nothing if it cannot be watched.

        Raises:
            GenerateError: nothing can be generated, or it fails on the way.
        """
        return iter(())

    def release(self) -> None:
        """Give back what it holds on a GPU until the next call."""
        return

    def stop(self) -> None:
        """Have a running ``generate`` raise ``GenerateError`` soon, for good; called from another thread."""
        return
