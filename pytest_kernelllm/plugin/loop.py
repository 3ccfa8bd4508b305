"""The order in which kernels are tested, each when its verdict falls, and what a person sees meanwhile."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence

import pytest
from _pytest.terminal import TerminalReporter

from kernelllm_judge.core.records import ADOPTED, CandidateId
from kernelllm_judge.core.spans import JUDGED, SEARCHED, WRITTEN
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.plugin.items import CandidateItem, TargetItem
from pytest_kernelllm.session.session import Session

REDRAWN = 0.5
"""Seconds after which the line on a terminal is drawn again."""

AT_ONCE = 0.05
"""Seconds between two ends, such as of what is known, below which tests keep the order that pytest gave them."""

LOGGED = 30.0
"""Seconds after which a log gets another line."""

NAMED = 3
"""Targets that the line names of each kind, at most."""

TOGETHER = "kernelllm-together"
"""Key under which pytest-xdist's workers learn whether each gets all items of a target. They do not know ``--dist``."""


class Loop:
    """Runs the tests of kernels. Registered as a plugin. Writes outside of tests only, where pytest captures nothing."""

    def __init__(self, session: Session) -> None:
        """``session`` is what the items ask."""
        self._session = session
        self._reporter: TerminalReporter | None = None
        """None with ``-q``."""
        self._latest = ""
        self._logged = time.monotonic()
        self._drawn = False
        self._seen: dict[tuple[str, CandidateId], Outcome] = {}

    def note(self, text: str) -> None:
        """Takes a few words about what is being done, from any thread."""
        self._latest = text

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Runs the tests of kernels behind all others when their verdicts fall; with pytest-xdist, in its order."""
        config, everything = session.config, session.items
        self._announce(everything, together=getattr(config, "workerinput", {TOGETHER: True})[TOGETHER])
        distributed = hasattr(config, "workerinput") or config.pluginmanager.hasplugin("dsession")
        if distributed or config.option.collectonly:
            return (yield)
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        self._reporter = reporter if reporter is not None and reporter.verbosity >= 0 else None
        others = max(
            (n for n, each in enumerate(everything, 1) if not isinstance(each, TargetItem)), default=0
        )
        session.items = everything[:others]  # with ``--ff``, kernels may be among them
        try:
            result = yield
        finally:
            session.items = everything
        for item in self._as_they_fall(
            [each for each in everything[others:] if isinstance(each, TargetItem)]
        ):
            # Which one is next is not known, so everything is torn down; no fixture of other tests is needed any more.
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        return result

    def _announce(self, items: Sequence[pytest.Item], *, together: bool) -> None:
        """Announces to the session what was selected, so that candidates of one target are judged side by side."""
        candidates = [item for item in items if isinstance(item, CandidateItem)]
        for item in candidates:
            if item.candidate != ADOPTED:
                self._session.announce(item.target)
        # Else pytest-xdist's workers share a target's items, and each judges its own.
        for item in candidates if together else ():
            self._session.expect(item.target, item.candidate)

    def _as_they_fall(self, items: Sequence[TargetItem]) -> Iterator[TargetItem]:
        """Yields items in the order in which what they test is known, and shows meanwhile what is waited for.

        Those that test a target as a whole come last.
        """
        whole = [item for item in items if not isinstance(item, CandidateItem)]
        left = [item for item in items if isinstance(item, CandidateItem)]
        targets = {item.target.id for item in items}
        seconds = 0.0  # where all is known, nothing is shown
        while left and (ended := self._session.ended(seconds)) is not None:
            while more := self._session.ended(AT_ONCE):
                ended += more
            seconds = REDRAWN
            known = [item for item in left if (item.target.id, item.candidate.generator) in ended]
            if known:
                self._show_verdicts()
                self._erase()
                left = [item for item in left if item not in known]
            yield from known
            if left:
                self._show(len(targets), len({item.target.id for item in left}))
        self._erase()
        yield from left
        yield from whole

    def _show(self, targets: int, left: int) -> None:
        if self._reporter is None:
            return
        self._show_verdicts()
        now = time.monotonic()
        if self._reporter.isatty:
            line = "  " + self._line(targets, left)
            self._reporter.ensure_newline()
            self._reporter.rewrite(line[: self._reporter._tw.fullwidth - 1], erase=True)
            self._drawn = True
        elif now - self._logged >= LOGGED:
            self._logged = now
            self._reporter.write_line(self._line(targets, left))

    def _show_verdicts(self) -> None:
        """Writes a line for each verdict that fell since the last time; with ``-v``, pytest's own follow."""
        if self._reporter is None or self._reporter.verbosity > 0:
            return
        for outcome in self._session.settled:
            key = outcome.target.id, outcome.id
            if outcome.verdict and not outcome.cached and self._seen.get(key) != outcome:
                self._erase()
                self._reporter.write_line(f"{outcome.target.name} {outcome.id}: {outcome.verdict.in_words()}")
            self._seen[key] = outcome

    def _erase(self) -> None:
        if self._drawn and self._reporter is not None:
            self._reporter.rewrite("", erase=True)
            self._reporter.rewrite("")
        self._drawn = False

    def _line(self, targets: int, left: int) -> str:
        """Returns ``1 of 9 targets done, about 4 min left; being written: 2 (A, B); being judged: 1 (C)``."""
        # Of those of one target, the last one lies in the others.
        doing = {target: what for what, target in self._session.context.recorder.doing}
        seconds = self._session.pace.seconds_left
        rest = "" if seconds is None else f", about {_in_words(seconds)} left"
        parts = [f"{targets - left} of {counted(targets, 'target')} done{rest}"]
        for kind in (WRITTEN, SEARCHED, JUDGED):
            names = [target.rpartition("::")[2] for target, what in doing.items() if what == kind]
            more = ", …" if len(names) > NAMED else ""
            parts += [f"{kind}: {len(names)} ({', '.join(names[:NAMED])}{more})"] if names else []
        if len(parts) == 1 and self._latest:
            parts.append(self._latest)
        return "; ".join(parts)


def _in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
