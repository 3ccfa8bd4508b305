"""Finds fenced blocks in Markdown as language models write it: indented, unclosed, or opened within a line."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LANGUAGE = re.compile(r"[\s{.]*([A-Za-z0-9+#]*)")


@dataclass(frozen=True)
class FencedBlock:
    """A fenced block of a text."""

    language: str
    """The first word after the fence in lower case: ``python`` for ``python:model.py`` and ``{.python}``."""
    code: str
    """The lines inside, without the indentation of the fence."""
    closed: bool
    """Whether the fence is closed."""


@dataclass(frozen=True)
class _Fence:
    """A line that is or ends in a fence."""

    indent: int
    before: str
    """Text on the line before the fence."""
    mark: str
    """The fence itself."""
    word: str
    """The text after it."""


def fenced_blocks(text: str) -> list[FencedBlock]:
    """Lists all fenced blocks of a text in order; an unclosed one ends where the next begins or with the text.

    An opening fence may follow other text on its line (``Answer: ```python``), and a closing one may follow
    code. Inside a block, a fence with a word after it opens the next block, unless it is indented deeper, as
    in a docstring.
    """
    blocks: list[FencedBlock] = []
    opened: _Fence | None = None
    inside: list[str] = []

    def end(closed: bool) -> None:
        if opened is not None:
            code = "\n".join(_dedented(inside, opened.indent)) + "\n"
            blocks.append(FencedBlock(_language(opened.word), code, closed))

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
    """Returns the fence that a line is or ends in; plain searching, because a line may be as long as the text."""
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
        return not any(sign in found.before for sign in "\"'#")  # else it is in a string or a comment
    return found.indent <= opened.indent + 3


def _language(word: str) -> str:
    match = _LANGUAGE.match(word)
    return match[1].lower() if match else ""


def _dedented(lines: list[str], indent: int) -> list[str]:
    """Removes the indentation of the fence from the lines if they share it."""
    first = next((line for line in lines if line.strip()), "")
    if len(first) - len(first.lstrip()) < indent:
        return lines
    return [line[min(indent, len(line) - len(line.lstrip())) :] for line in lines]
