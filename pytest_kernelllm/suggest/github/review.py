"""Turns changes into review suggestions, if they lie within the lines that the pull request shows."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_kernelllm.suggest.github.git import Change

MOST_COMMENTS = 30
"""A person would not accept more of them one by one."""

_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def fitting(changes: Sequence[Change], files: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Returns the changes as comments of a review; None if some of them do not fit.

    Args:
        changes: changes to the head of the pull request.
        files: the files of the pull request as GitHub lists them; ``patch`` is each file's diff.
    """
    shown = {str(file["filename"]): _ranges(str(file.get("patch") or "")) for file in files}
    comments: list[dict[str, Any]] = []
    for change in changes:
        own = _comments(change, shown.get(change.path, []))
        if own is None:
            return None
        comments += own
    return comments if len(comments) <= MOST_COMMENTS else None


def _ranges(patch: str) -> list[range]:
    """The line numbers of the new file that a diff shows, one range per hunk."""
    return [
        range(int(start), int(start) + (int(count) if count else 1)) for start, count in _HUNK.findall(patch)
    ]


def _comments(change: Change, shown: Sequence[range]) -> list[dict[str, Any]] | None:
    old, new = _lines(change.old), _lines(change.new)
    if old is None or new is None:
        return None
    comments = []
    for tag, first, last, start, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        text = new[start:end]
        if first == last:  # an insertion: attach it to the line before, or to the one after
            if first > 0:
                first, text = first - 1, [old[first - 1], *text]
            elif old:
                last, text = 1, [*text, old[0]]
        lines = range(first + 1, last + 1)
        if not lines or not any(lines[0] in hunk and lines[-1] in hunk for hunk in shown):
            return None
        where = {"path": change.path, "line": lines[-1], "side": "RIGHT"}
        if len(lines) > 1:
            where |= {"start_line": lines[0], "start_side": "RIGHT"}
        comments.append({**where, "body": _suggested(text)})
    return comments


def _lines(content: bytes | None) -> list[str] | None:
    """The lines without their ends; None if a suggestion could not keep every byte."""
    if content is None or b"\r" in content or not content.endswith(b"\n"):
        return None
    try:
        return content.decode().split("\n")[:-1]
    except UnicodeDecodeError:
        return None


def _suggested(lines: Sequence[str]) -> str:
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}suggestion", *lines, fence])
