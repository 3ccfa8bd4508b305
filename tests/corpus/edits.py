"""Reads texts that are written as edits of other texts.

A ``.diff`` file holds many::

    === softmax__zeros from softmax__plain; family: wrong numbers; rule: values
    trick: It writes zeros.
    -    tl.store(out_ptr + columns, powers / total, mask=mask)
    +    tl.store(out_ptr + columns, powers * 0.0, mask=mask)

The first line names the text, the text that it is an edit of, and short fields; a line each for longer fields follows,
then the hunks. A hunk is lines to find (``-`` removes one, a space keeps it) and the lines that come after them (``+``). It
ends before the next line to find, or at ``@@``. Its lines to find must occur once behind those of the hunk before it.
``from nothing`` is a whole text, all ``+``; the imports that every kernel begins with are left out. Blank lines are, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PROLOGUE = ["import torch", "import triton", "import triton.language as tl"]

_HEAD = re.compile(r"=== (\S+) from (\S+?)((?:; [a-z ]+: [^;]+)*)")
_FIELD = re.compile(r"([a-z ]+): (.+)")


@dataclass(frozen=True)
class Edit:
    """One text, as an edit of another."""

    name: str
    base: str
    """The other text's name, or ``nothing``."""
    fields: Mapping[str, str]
    lines: tuple[str, ...]
    """Its hunks."""

    def apply(self, base: str) -> str:
        """Returns the edited text.

        Raises:
            ValueError: a hunk fits nowhere, or at several places.
        """
        if self.base == "nothing":
            whole = [line[1:] for line in self.lines]
            return "\n".join(whole if "import torch" in whole else PROLOGUE + whole) + "\n"
        done: list[str] = []
        rest = [line for line in base.splitlines() if line.strip()]
        for hunk in self._hunks():
            old = [line[1:] for line in hunk if not line.startswith("+")]
            places = [i for i in range(len(rest) - len(old) + 1) if rest[i : i + len(old)] == old]
            if not old or len(places) != 1:
                raise ValueError(
                    f"{self.name}: {self.base} holds these lines {len(places)} times, not once, behind "
                    f"what was edited before: {old}"
                )
            done += rest[: places[0]] + [line[1:] for line in hunk if not line.startswith("-")]
            rest = rest[places[0] + len(old) :]
        return "\n".join([*done, *rest]) + "\n"

    def _hunks(self) -> Iterator[list[str]]:
        hunk: list[str] = []
        for line in self.lines:
            if line == "@@" or (hunk and hunk[-1].startswith("+") and not line.startswith("+")):
                yield hunk
                hunk = []
            if line != "@@":
                hunk.append(line)
        if hunk:
            yield hunk


def read_edits(file: Path) -> list[Edit]:
    """Returns the edits in a file.

    Raises:
        ValueError: a line is none of the format.
    """
    found = []
    for block in re.split(r"^(?==== )", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        first, *lines = block.rstrip().splitlines()
        if not (head := _HEAD.fullmatch(first)):
            raise ValueError(f"{file.name}: {first!r} is not '=== NAME from NAME; field: value; …'")
        fields = {}
        for short in head[3].split("; ")[1:]:
            key, _, value = short.partition(": ")
            fields[key] = value
        while lines and (field := _FIELD.fullmatch(lines[0])):
            fields[field[1]] = field[2]
            lines.pop(0)
        if strange := [line for line in lines if line != "@@" and line[:1] not in (" ", "-", "+")]:
            raise ValueError(f"{file.name}, {head[1]}: {strange[0]!r} begins with none of ' ', '-' and '+'")
        found.append(Edit(head[1], head[2], fields, tuple(lines)))
    return found


class Texts:
    """Texts by name: Python files, and edits of them and of one another."""

    def __init__(self, files: Iterable[Path], edits: Iterable[Edit]) -> None:
        """Reads nothing yet."""
        self.files = {file.stem: file for file in files}
        self.edits = {edit.name: edit for edit in edits}

    def __getitem__(self, name: str) -> str:
        """Returns a text.

        Raises:
            ValueError: no text has the name, or an edit on the way to it does not fit.
        """
        if name in self.files:
            return self.files[name].read_text(encoding="utf-8")
        if name not in self.edits:
            raise ValueError(f"no file and no edit is named {name!r}")
        edit = self.edits[name]
        return edit.apply("" if edit.base == "nothing" else self[edit.base])
