"""Fenced blocks of Markdown as language models write it: indented, unclosed, or opened in the middle of a line."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LANGUAGE = re.compile(r"[\s{.]*([A-Za-z0-9+#]*)")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    language: str
    """First word after the fence, in small letters: ``python`` of ``python:model.py`` and ``{.python}``."""
    code: str
    """The lines inside, less the indentation of the fence."""
    closed: bool
    """Whether the fence was ever closed."""


@dataclass(frozen=True)
class _Fence:
    """A line that is, or ends in, a fence."""

    indent: int
    before: str
    """Text on the line before the fence."""
    mark: str
    """The fence itself."""
    word: str
    """What follows it."""


def fenced_blocks(text: str) -> list[Block]:
    """Every fenced block of a text, in order; an unclosed one ends where the next begins, or with the text.

    A fence may follow other text on its line where it opens a block (``Answer: ```python``), and follow code where
    it closes one. In a block, a fence with a word after it opens the next one, unless it is indented deeper, as in a
    docstring.
    """
    blocks: list[Block] = []
    opened: _Fence | None = None
    inside: list[str] = []

    def end(closed: bool) -> None:
        if opened is not None:
            code = "\n".join(_dedented(inside, opened.indent)) + "\n"
            blocks.append(Block(_language(opened.word), code, closed))

    for line in text.split("\n"):
        found = _fence(line)
        if found is None:
            inside.append(line)
        elif opened is None or (found.word and not found.before and found.indent <= opened.indent + 3):
            end(False)
            opened, inside = found, []
        elif _closes(found, opened):
            inside += [found.before] if found.before else []
            end(True)
            opened, inside = None, []
        else:
            inside.append(line)
    end(False)
    return blocks


def is_fence(line: str) -> bool:
    """Whether a line outside a block opens one."""
    return _fence(line) is not None


def _fence(line: str) -> _Fence | None:
    """The fence that a line is or ends in. By plain searching: a line may be as long as the text."""
    body = line.strip()
    for mark in ("`", "~"):
        at = body.find(mark * 3)
        if at < 0 or (at > 0 and mark == "~"):
            continue
        before, rest = body[:at], body[at:]
        word = rest.lstrip(mark)
        if mark in before or mark in word or (before and len(word.split()) > 1):
            continue
        indent = len(line) - len(line.lstrip())
        fence = rest[: len(rest) - len(word)]
        return _Fence(indent, line[: len(line.rstrip()) - len(rest)] if before else "", fence, word.strip())
    return None


def _closes(found: _Fence, opened: _Fence) -> bool:
    if found.word or not found.mark.startswith(opened.mark):
        return False
    if found.before:
        return not any(sign in found.before for sign in "\"'#")  # else it stands in a string or a comment
    return found.indent <= opened.indent + 3


def _language(word: str) -> str:
    match = _LANGUAGE.match(word)
    return match[1].lower() if match else ""


def _dedented(lines: list[str], indent: int) -> list[str]:
    """The lines without the indentation of their fence, if they share it."""
    first = next((line for line in lines if line.strip()), "")
    if len(first) - len(first.lstrip()) < indent:
        return lines
    return [line[min(indent, len(line) - len(line.lstrip())) :] for line in lines]
