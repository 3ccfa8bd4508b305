"""Tables that fit a terminal: one line a row, names shortened from the left, and the least important columns left out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelllm_judge.core.shorten import path, whole

NARROWEST = 24
"""Characters that a column which is shortened keeps at least, before another column is left out."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    drop: int = 0
    """Where there is no room, the column with the largest number goes first; one with 0 stays."""
    shorten: Callable[[str, int], str] | None = None
    """Shortens a cell; None for a column of figures, which stand on the right."""


NAME, SENTENCE = path, whole
"""What shortens a column."""


def terminal_width() -> int:
    """Returns the columns of the terminal; 120 where there is none."""
    return max(40, shutil.get_terminal_size((120, 24)).columns)


def class_first(identity: str) -> str:
    """Returns ``RMSNorm src/layers.py`` for ``src/layers.py::RMSNorm``."""
    place, _, name = identity.partition("::")
    return f"{name} {place}" if name else place


def fitted(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, total: bool = False
) -> Table:
    """Returns a table that is at most so wide, with one line a row; with ``total`` the last one stands apart.

    Cells are in rich's markup.
    """
    texts = [[Text.from_markup(cell) for cell in row] for row in rows]
    widths = [
        max(len(column.name), *(len(row[number]) for row in texts), 1)
        for number, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))

    def least(number: int) -> int:
        return min(widths[number], NARROWEST) if columns[number].shorten else widths[number]

    def room() -> int:
        return width - 2 - 3 * (len(kept) - 1)

    while sum(map(least, kept)) > room() and any(columns[number].drop for number in kept):
        kept.remove(max(kept, key=lambda number: columns[number].drop))
    flexible = [number for number in kept if columns[number].shorten]
    while (
        flexible and sum(widths[number] for number in kept) > room() and max(widths[n] for n in flexible) > 1
    ):
        # Names give way last.
        widths[max(flexible, key=lambda number: widths[number] - 8 * (columns[number].shorten is NAME))] -= 1
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number in kept:
        table.add_column(
            columns[number].name, justify="left" if columns[number].shorten else "right", no_wrap=True
        )
    for position, row in enumerate(texts):
        if total and position == len(texts) - 1:
            table.add_section()
        cells = [_cell(row[number], columns[number], widths[number]) for number in kept]
        table.add_row(*cells, style="bold" if total and position == len(texts) - 1 else None)
    return table


def _cell(text: Text, column: Column, width: int) -> Text:
    if column.shorten is None or len(text) <= width:
        return text
    shortened = column.shorten(text.plain, width)
    cell = Text(shortened)
    if shortened.startswith(text.plain[: len(shortened) - 1]):  # its colours stand where they stood
        cell.spans = [span for span in text.spans if span.start < len(shortened)]
    return cell


def rendered(width: int, color: bool, *parts: Table | str) -> str:
    """Returns tables and lines as text; a line may be longer than the terminal."""
    console = Console(
        width=width, force_terminal=color, no_color=not color, highlight=False, legacy_windows=False
    )
    with console.capture() as capture:
        for part in parts:
            is_line = isinstance(part, str)
            console.print(part, markup=not is_line, soft_wrap=is_line)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()).strip("\n")
