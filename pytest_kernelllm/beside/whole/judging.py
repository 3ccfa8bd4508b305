"""Has kernels for regions written and judged, as ``pytest --kernelllm`` does, for as long as there is time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import Target
from pytest_kernelllm.beside.whole.capture import Found
from pytest_kernelllm.core.outcome import Outcome, best, nearest
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.session.session import Session


@dataclass(frozen=True)
class Judged:
    """A region with what became of its candidates."""

    found: Found
    outcome: Outcome | None = None
    """The accepted one to place, else the one that came nearest; None where there is none."""
    reason: str = ""
    """Why no kernel may be placed; empty if one may."""

    @property
    def accepted(self) -> bool:
        """Whether a kernel may be placed."""
        return not self.reason


@dataclass(frozen=True)
class Begun:
    """Regions of a file whose kernels are being written and judged in other processes."""

    found: tuple[Found, ...]
    targets: tuple[Target, ...]
    end: float
    """The monotonic time after which nothing more is judged."""


def begin(session: Session, file: Path, found: Sequence[Found], seconds: float) -> Begun:
    """Begins to judge the regions of a file, the first ones first; what the store knows takes no time.

    Args:
        session: of the project.
        seconds: after which nothing more is judged.
    """
    targets = {target.name: target for target in scan_file(file, session.context.root).targets}
    ordered = tuple(targets[each.text.name] for each in found)
    for target in ordered:
        session.announce(target)
    for target in ordered:
        for candidate in session.candidate_ids:
            session.expect(target, candidate)
    return Begun(tuple(found), ordered, time.monotonic() + seconds)


def judged(session: Session, begun: Begun, done: Callable[[], None]) -> list[Judged]:
    """Waits until all regions are judged, or the time is over.

    Args:
        done: called whenever a region is finished.

    Raises:
        SessionError: nothing can be judged here.
    """
    ended: set[str] = set()
    finished = False
    while time.monotonic() < begun.end:
        groups = session.ended(min(0.5, max(begun.end - time.monotonic(), 0.01)))
        if groups is None:
            finished = True
            break
        for group in groups:
            ended.add(group.target)
            done()
    if not finished:
        session.interrupt()
    pairs = zip(begun.found, begun.targets, strict=True)
    return [_judged(session, each, target, ended) for each, target in pairs]


def _judged(session: Session, found: Found, target: Target, ended: set[str]) -> Judged:
    own = [each for each in session.settled if each.target.id == target.id]
    winner = best(own)
    if winner is not None and winner.candidate is not None:
        return Judged(found, winner)
    if target.id in ended and not own:
        try:  # which raises what ended it
            own = [session.outcome(target, each) for each in session.candidate_ids[:1]]
        except SessionError as error:
            return Judged(found, reason=str(error).rstrip("."))
    if not own:
        return Judged(found, reason="no time was left to judge it")
    close = nearest(own)
    why = close.why.rstrip(".") or "no kernel was accepted"
    return Judged(found, close, why)
