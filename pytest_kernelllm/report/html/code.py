"""Source texts as lines of HTML: highlighted, with one line marked, or as a difference."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from markupsafe import Markup, escape
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

from kernelllm_judge.core.characters import described, reordering
from kernelllm_judge.core.records import Verdict

_CLASSES = (
    (Comment, "c"),
    (String, "s"),
    (Number, "m"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Decorator, "d"),
    (Name.Function, "f"),
    (Name.Class, "f"),
)
"""The few kinds of tokens that the page colours; each has a class in ``page.css``."""

_LAYOUT = str.maketrans("", "", "\n\t")
_LINE = re.compile(r"\bline (\d+)\b")
_RAISED = re.compile(r"\(line (\d+)\)$")


def visible(text: str) -> str:
    """Returns a text in which characters that are invisible, or that reorder their line, are replaced by their names."""
    if text.isascii() and text.translate(_LAYOUT).isprintable():
        return text
    return "".join(
        c if c in "\n\t" or (c.isprintable() and not reordering(c)) else f"⟨{described(c)}⟩" for c in text
    )


def highlighted(source: str, first: int = 1, marked: int | None = None, anchor: str = "") -> Markup:
    """Returns Python source as HTML: one element a line, numbered by the page's style."""
    lines: list[list[str]] = [[]]
    for kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens(visible(source)):
        css = next((name for group, name in _CLASSES if kind in group), None)
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if part:
                text = escape(part)
                lines[-1].append(f'<span class="{css}">{text}</span>' if css and part.strip() else text)
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return Markup("").join(
        Markup("<span {}>{}\n</span>").format(
            Markup('class="l wrong" id="{}"').format(anchor) if number == marked else Markup('class="l"'),
            Markup("".join(line)),
        )
        for number, line in enumerate(lines, first)
    )


def difference(old: str, new: str) -> Markup:
    """Returns a unified difference as HTML, one element a line; empty if the texts are equal."""
    lines = difflib.unified_diff(visible(old).splitlines(), visible(new).splitlines(), n=3, lineterm="")
    return Markup("").join(_diff_lines(lines))


def _diff_lines(lines: Iterator[str]) -> Iterator[Markup]:
    names = {"+": " add", "-": " del", "@": " hunk"}
    for number, line in enumerate(lines):
        if number > 1:  # after the names of the two files
            yield Markup('<span class="l{}">{}\n</span>').format(names.get(line[:1], ""), line)


def wrong_line(verdict: Verdict | None) -> int | None:
    """Returns the line of the kernel module that a rejection names; None if it names none."""
    if verdict is None or verdict.verdict != "rejected":
        return None
    found = _RAISED.search(verdict.reason) or _LINE.search(verdict.reason)
    return int(found[1]) if found else None
