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


def judge(
    session: Session, file: Path, found: Sequence[Found], seconds: float, done: Callable[[], None]
) -> list[Judged]:
    """Judges the regions of a file, the first ones first; what the store knows takes no time.

    Args:
        session: of the project.
        seconds: after which nothing more is judged.
        done: called whenever a region is finished.

    Raises:
        SessionError: nothing can be judged here.
    """
    targets = {target.name: target for target in scan_file(file, session.context.root).targets}
    ordered = [targets[each.text.name] for each in found]
    end = time.monotonic() + seconds
    ids = session.candidate_ids
    for target in ordered:
        session.announce(target)
    for target in ordered:
        for candidate in ids:
            session.expect(target, candidate)
    ended: set[str] = set()
    finished = False
    while time.monotonic() < end:
        groups = session.ended(min(0.5, max(end - time.monotonic(), 0.01)))
        if groups is None:
            finished = True
            break
        for group in groups:
            ended.add(group.target)
            done()
    if not finished:
        session.interrupt()
    return [_judged(session, each, target, ended) for each, target in zip(found, ordered, strict=True)]


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
