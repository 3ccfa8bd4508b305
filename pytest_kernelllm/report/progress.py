"""Shows the progress of a long command: one live line on a terminal, nothing in a log."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


@contextlib.contextmanager
def judging_progress(total: int) -> Iterator[Callable[[], None]]:
    """Shows verdicts done, their rate and the time left on standard error; call what it gives at each verdict."""
    console = Console(stderr=True)
    columns = (
        TextColumn("judging"),
        BarColumn(),
        MofNCompleteColumn(),
        VerdictsAMinute(),
        TimeRemainingColumn(),
    )
    shown = sys.stderr.isatty()
    # What goes to a file or a pipe must not be drawn into the terminal's line.
    with Progress(*columns, console=console, disable=not shown, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task("judging", total=total)
        yield lambda: bar.advance(task)


@contextlib.contextmanager
def target_progress(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """Shows on standard error what is being done and how many targets are finished.

    Gives a function to call with what is being done, and one to call at each finished target.
    """
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    shown = sys.stderr.isatty()
    with Progress(*columns, console=console, disable=not shown, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task("targets", total=total)
        yield lambda text: bar.update(task, description=text), lambda: bar.advance(task)


class VerdictsAMinute(ProgressColumn):
    """The recent rate."""

    def render(self, task: Task) -> Text:
        """As text, once two verdicts are there."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed * 60:.0f} verdicts/min" if speed else "")
