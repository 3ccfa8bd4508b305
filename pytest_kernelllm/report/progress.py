"""Shows the progress of a long command: one live line on a terminal, nothing in a log."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextlib.contextmanager
def live_progress(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """Shows on standard error what is being done, how much is finished and how long the rest will take.

    Gives a function to call with what is being done, and one to call at each finished target or pair.
    """
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.description}", markup=False),
    )
    # What goes to a file or a pipe must not be drawn into the terminal's line.
    with Progress(
        *columns,
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        redirect_stdout=sys.stdout.isatty(),
        speed_estimate_period=600,
    ) as bar:
        task = bar.add_task("", total=total)
        yield lambda text: bar.update(task, description=text), lambda: bar.advance(task)
