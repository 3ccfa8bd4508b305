"""Shows the progress of a long command: one live line on a terminal, nothing in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


@contextlib.contextmanager
def live_progress(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[bool], None]]]:
    """Shows on standard error what is being done, how much is finished and how long the rest will take.

    Gives a function to call with what is being done, and one to call at each finished target or pair: with True if it took
    work, with False if all about it was known.
    """
    console = Console(stderr=True)
    columns = (
        BarColumn(),
        TextColumn("{task.fields[pace]}", markup=False),
        TextColumn("{task.description}", markup=False),
    )
    shown = sys.stderr.isatty()
    pace = Pace(total)
    # What goes to a file or a pipe must not be drawn into the terminal's line.
    with Progress(*columns, console=console, disable=not shown, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task("", total=total, pace=str(pace))

        def done(worked: bool) -> None:
            pace.finish(worked)
            bar.update(task, advance=1, pace=str(pace))

        yield lambda text: bar.update(task, description=text), done


class Pace:
    """Estimates how long a run will take from what its targets took so far.

    What an earlier run left in the store takes no time, and says nothing about the targets that are left.
    """

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts now.

        Args:
            total: targets in all.
            clock: returns seconds.
        """
        self._total = total
        self._clock = clock
        self._last = clock()
        self._done = self._worked = 0
        self._seconds = 0.0

    def finish(self, worked: bool) -> None:
        """Counts a finished target; ``worked``: its verdicts were not all in the store."""
        now = self._clock()
        self._done += 1
        if worked:
            self._worked += 1
            self._seconds += now - self._last
        self._last = now

    def __str__(self) -> str:
        """``37 of 250, about 6 min left``; without the time until a target took some."""
        count = f"{self._done} of {self._total}"
        left = self._total - self._done
        return (
            f"{count}, about {_span(self._seconds / self._worked * left)} left"
            if self._worked and left
            else count
        )


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
