"""Tells whether an edited source file differs from the shortest edit by its marker's layout only."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Sequence
from pathlib import Path

from kernelllm_judge.core.program import UNREADABLE, parse, plain_text
from kernelllm_judge.core.records import Target
from pytest_kernelllm.suggest.edit import EditError, marker_lines

_LAYOUT = frozenset(" \n,()\"'")
"""Characters that a formatter may bring in."""


def only_laid_out(
    before: bytes, expected: bytes, found: bytes, targets: Sequence[Target], root: Path
) -> bool:
    """Whether ``found`` is ``expected`` with markers that a formatter wrote in its own way, and nothing else.

    Args:
        before: the file without the adoptions.
        expected: the file with the shortest edit for each adoption.
        found: the file as a patch has it.
    """
    try:
        old, new, shortest = (plain_text(content) for content in (before, found, expected))
        return (
            found.count(b"\r\n") in (0, found.count(b"\n"))
            and (b"\r\n" in found) == (b"\r\n" in before)
            and set(new) - set(shortest) <= _LAYOUT
            and ast.dump(parse(new)) == ast.dump(parse(shortest))
            and _comments(new) == _comments(shortest)
            and _outside(old, before, targets, root) == _outside(new, found, targets, root)
        )
    except (EditError, tokenize.TokenError, *UNREADABLE):
        return False


def _comments(text: str) -> list[str]:
    return [
        t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT
    ]


def _outside(text: str, content: bytes, targets: Sequence[Target], root: Path) -> list[str]:
    """The lines of a file that belong to none of these targets' markers."""
    inside = {line for target in targets for line in marker_lines(content, target, root)}
    return [line for number, line in enumerate(text.split("\n"), 1) if number not in inside]
