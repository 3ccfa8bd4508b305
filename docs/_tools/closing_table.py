"""Draws the closing table of a recorded run: ``python docs/_tools/closing_table.py``.

``closing-table.txt`` beside the picture holds what ``pytest --kernelllm`` printed. To show another run, replace the
text and run this again.
"""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

STATIC = Path(__file__).parents[1] / "_static"
TITLE = "pytest --kernelllm"


def draw(recorded: str) -> str:
    """The text as a terminal shows it, in SVG."""
    lines = recorded.rstrip("\n").split("\n")
    console = Console(record=True, width=max(map(len, lines)) + 1, file=StringIO(), force_terminal=True)
    for line in lines:
        text = Text.from_ansi(line)
        text.highlight_regex(r"\bpatch$", "green")
        text.highlight_regex(r"^ target .*", "bold")
        console.print(text, highlight=False)
    picture = console.export_svg(title=TITLE, unique_id="kernelllm")
    # Readers' browsers should ask nobody for a font; without it they take a monospaced one of theirs.
    return re.sub(r",\s*url\([^)]*\) format\([^)]*\)", "", picture)


if __name__ == "__main__":
    picture = draw((STATIC / "closing-table.txt").read_text(encoding="utf-8"))
    (STATIC / "closing-table.svg").write_text(picture, encoding="utf-8")
