"""Fences the decisions in a kernel module's Python code of which probes saw some outcomes only: the original runs elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from kernelllm_judge.coverage.decisions import FENCES, Outcome, decisions_in, fences_of

OUTSIDE = 'raise NotImplementedError("outside the verified domain")'


def fenced(source: str, seen: Mapping[int, Set[Outcome]]) -> str:
    """Returns the module with the original in place of every outcome that was not seen.

    Args:
        source: the kernel module.
        seen: by number of each decision that is to be fenced, the outcomes that probes had.
    """
    text, edits, needed = _Text(source), list[_Edit](), set[str]()
    for number, (node, kind, _) in enumerate(decisions_in(ast.parse(source))):
        if number not in seen:
            continue
        outcomes = "".join(f", {outcome!r}" for outcome in sorted(seen[number], key=repr))
        if kind == "handler":
            edits.append(_Edit(text.start(node.body[0]), text.end(node.body[-1]), OUTSIDE))
        elif kind == "choice":
            needed.add("_judged_choice")
            edits.append(text.before(node, f"_judged_choice(({outcomes[2:]},), "))
            edits.append(_Edit(text.end(node.func), text.start(node.args[0]), ", "))
        else:
            needed.add(name := "_judged_if" if kind == "condition" else "_judged_only")
            piece = node.slice if kind == "index" else node
            edits.append(text.before(piece, f"{name}("))
            edits.append(text.after(piece, f"{outcomes})"))
    return text.edited(
        edits, "".join("\n\n" + FENCES[name].strip("\n") + "\n" for name in sorted(needed - text.fences))
    )


@dataclass(frozen=True)
class _Edit:
    """A piece of the source, in bytes, and what stands there afterwards."""

    start: int
    end: int
    text: str
    width: int = 0
    """Of the expression around which it is inserted: wider ones enclose narrower ones. Negative: before it."""


class _Text:
    """A source, in which the places of nodes are counted in bytes."""

    def __init__(self, source: str) -> None:
        self._bytes = source.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.fences = fences_of(ast.parse(source))

    def start(self, node: Any) -> int:
        return int(self._starts[node.lineno - 1] + node.col_offset)

    def end(self, node: Any) -> int:
        return int(self._starts[node.end_lineno - 1] + node.end_col_offset)

    def before(self, node: Any, text: str) -> _Edit:
        return _Edit(self.start(node), self.start(node), text, self.start(node) - self.end(node))

    def after(self, node: Any, text: str) -> _Edit:
        return _Edit(self.end(node), self.end(node), text, self.end(node) - self.start(node))

    def edited(self, edits: list[_Edit], more: str) -> str:
        """Applies edits, of which those inside a replaced piece are dropped, and adds text behind the imports."""
        replaced = [edit for edit in edits if edit.end > edit.start]
        kept = [
            e
            for e in edits
            if not any(r.start <= e.start and e.end <= r.end and r is not e for r in replaced)
        ]
        parts, at = [], 0
        # At one place, what ends comes before what begins; of what ends the narrowest first, of what begins the widest.
        for edit in sorted(kept, key=lambda e: (e.start, e.width < 0, e.width)):
            parts += [self._bytes[at : edit.start], edit.text.encode()]
            at = edit.end
        text = b"".join([*parts, self._bytes[at:]]).decode()
        if not more:
            return text
        # They are defined before anything may decide: behind the imports.
        body = ast.parse(text).body
        imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        lines = text.splitlines(keepends=True)
        after = (imports[-1].end_lineno or 0) if imports else 0
        return (
            "".join(lines[:after])
            + "\n\n"
            + more.strip("\n")
            + "\n\n\n"
            + "".join(lines[after:]).lstrip("\n")
        )
