"""The interface of a generator, which writes candidates for targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kernelllm_judge.core.records import Completion, Target, Verdict

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget


class GenerateError(RuntimeError):
    """Raised if a generator cannot work at all (missing extra, missing folder, no server); it says what to do."""


@dataclass(frozen=True)
class Request:
    """Asks for candidates for one target."""

    target: Target
    indices: tuple[int, ...]
    """Indices of the requested samples, which are not in the store yet, in increasing order."""
    live: Callable[[], LiveTarget]
    """Returns the live target; the first call imports the user's code, so call it only if the class is needed."""


@dataclass(frozen=True)
class Attempt:
    """An answer that was rejected, and why."""

    completion: Completion
    verdict: Verdict | None
    """None where there was no code to judge; the completion's note may say why."""
    source: str = ""
    """The kernel module that was made of it; empty if none was."""


@dataclass(frozen=True)
class Repair:
    """Asks for another answer after some that were rejected."""

    request: Request
    """The request for one sample."""
    attempts: tuple[Attempt, ...]
    """All answers so far, the first one first."""


class Generator(Protocol):
    """Writes candidates; ``generate`` takes many targets at once, so that a model can batch them.

    Derive your own generators from this class.
    """

    name: str
    """What people call it, in ids as well (``correctness[inductor-3]``): unique in a run."""
    batched: bool = False
    """Whether many targets at once are cheaper than one after the other."""
    concurrent: bool = False
    """Whether several threads may call ``generate`` at once, each for other targets. No generator is called in the main thread."""
    on_gpu: bool = False
    """Whether it computes on this machine's GPUs, so that nothing can be timed at the same time."""

    repairs: bool = False
    """Whether ``repair`` works."""

    def identity(self) -> str:
        """Returns everything that changes the completions (model, revision, sampling…), under which they are cached.

        It must not import torch, because it is called even if every completion is cached.
        """

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
        """Yields completions as they arrive, in any order.

        A target without a possible completion gets one with empty text and a ``note`` that says why in one
        line. Fewer completions than requested mean that the generator has no more distinct ones. Closing the iterator
        ends the work.

        Raises:
            GenerateError: nothing can be generated for any target.
        """

    def repair(self, repairs: Sequence[Repair]) -> Iterator[tuple[Repair, Completion]]:
        """Yields an answer to each request that takes the verdicts on the earlier ones into account, in any order.

        Called only where ``repairs`` is true.

        Raises:
            GenerateError: nothing can be generated for any target.
        """
        return iter(())

    def release(self) -> None:
        """Frees its GPU memory until the next call."""
        return

    def stop(self) -> None:
        """Makes a running and every later ``generate`` raise ``GenerateError``; call it from another thread."""
        return
