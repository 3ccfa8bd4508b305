"""Adds ``kernel="..."`` to one marker or removes it, by editing text ranges: every other byte of the file stays."""

from __future__ import annotations

import ast
import io
import re
import token
import tokenize
from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.core.records import Target
from kernelllm_judge.core.syntax import chain_of
from kernelllm_runtime.source.marks import Mark, find_marks, is_marker
from kernelllm_runtime.source.resolve import ProjectSources

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LAYOUT = (token.NL, token.NEWLINE, token.COMMENT, token.INDENT, token.DEDENT, token.ENDMARKER)


class EditError(ValueError):
    """The marker cannot be edited safely; one sentence with the place, the reason and what to write by hand."""


def set_kernel(source: bytes, target: Target, kernel: str, root: Path) -> bytes:
    """Returns the file with ``kernel="<kernel>"`` in the target's marker.

    Args:
        source: the file's bytes; encoding, byte order mark, line ends and a missing last line end are kept.
        target: its marker is edited; it is found by the target's name, so lines above it may have changed.

    Raises:
        EditError: there is no such marker, or it cannot be edited safely.
    """
    return _changed(source, target, root, kernel)


def remove_kernel(source: bytes, target: Target, root: Path) -> bytes:
    """Returns the file without ``kernel=`` in the target's marker: the inverse of ``set_kernel``, byte for byte.

    Arguments and errors are those of ``set_kernel``; a marker without ``kernel=`` is left as it is.
    """
    return _changed(source, target, root, None)


def marker_lines(source: bytes, target: Target, root: Path) -> range:
    """Returns the numbers of the lines that hold a target's marker: of the decorator, or of the statement that calls it.

    Arguments are those of ``set_kernel``.

    Raises:
        EditError: there is no such marker.
    """
    try:
        marker = _find(source, target, root)
    except (_Unsure, SyntaxError, ValueError, RecursionError) as error:
        raise EditError(f"{target.path}: the marker of {target.name} is not found because {error}.") from None
    around: ast.expr | ast.stmt = marker.node
    if marker.mark.kind != "decorator":
        statements = (node for node in ast.walk(marker.tree) if isinstance(node, ast.stmt))
        holding = [statement for statement in statements if marker.node in ast.walk(statement)]
        around = max(holding, key=lambda statement: (statement.lineno, statement.col_offset))
    return range(around.lineno, (around.end_lineno or around.lineno) + 1)


def _changed(source: bytes, target: Target, root: Path, kernel: str | None) -> bytes:
    what = f'kernel="{kernel}" cannot be written into' if kernel else "kernel= cannot be removed from"
    failed, advice = (
        f"{target.path}:{target.line}: {what} the marker of {target.name}",
        "write it there by hand" if kernel else "remove it by hand",
    )
    try:
        marker = _find(source, target, root)
        text = _Text(source)
        edits = _edits(text, marker, kernel) if kernel else _removals(text, marker)
        edited = text.with_edits(edits)
        after = _find(edited, target, root)
    except (_Unsure, SyntaxError, ValueError, RecursionError) as error:
        raise EditError(f"{failed} because {error}; {advice}.") from None
    if ast.dump(_without_kernel(marker)) != ast.dump(_without_kernel(after)) or after.mark.kernel != kernel:
        raise EditError(f"{failed} without another change; {advice}.")
    return edited


class _Unsure(Exception):
    """The reason why an edit would be a guess; it completes a sentence."""


@dataclass(frozen=True)
class _Marker:
    """A marker in a parsed file; ``node`` is the bare name, or the call with the options."""

    tree: ast.Module
    mark: Mark
    node: ast.expr


def _find(source: bytes, target: Target, root: Path) -> _Marker:
    project = ProjectSources(root.absolute())
    module = project.parse(root.absolute() / target.path, source)
    mark = next((m for m in find_marks(project, module).marks if m.name == target.name), None)
    if mark is None:
        where = (
            "a KernelBench file has no marker" if target.kind == "kernelbench" else "there is no such marker"
        )
        raise _Unsure(where)
    if mark.node is not None:
        decorators = (d for d in mark.node.decorator_list if d.lineno == mark.line)
        nodes = [d for d in decorators if is_marker(project, module, d)]
    else:
        calls = [n for n in ast.walk(module.tree) if isinstance(n, ast.Call) and n.lineno == mark.line]
        named = [call for call in calls if call.args and chain_of(call.args[0]) == mark.expression]
        nodes = [
            call if is_marker(project, module, call) else call.func
            for call in named
            if is_marker(project, module, call)
            or (isinstance(call.func, ast.Call) and is_marker(project, module, call.func))
        ]
    if len(nodes) != 1:
        raise _Unsure(f"the class has {len(nodes)} markers there")
    return _Marker(module.tree, mark, nodes[0])


def _without_kernel(marker: _Marker) -> ast.Module:
    """The tree without the ``kernel`` keyword, a bare marker being an empty call. Changes the tree in place."""
    node = marker.node
    if isinstance(node, ast.Call):
        node.keywords = [keyword for keyword in node.keywords if keyword.arg != "kernel"]
    else:
        for owner in ast.walk(marker.tree):
            if isinstance(owner, ast.ClassDef) and node in owner.decorator_list:
                owner.decorator_list[owner.decorator_list.index(node)] = ast.Call(node, [], [])
    return marker.tree


class _Text:
    """A decoded source file: translates positions and applies edits."""

    def __init__(self, source: bytes) -> None:
        self.encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        self.text = source.decode(self.encoding)
        if self.text.encode(self.encoding) != source:
            raise _Unsure(f"its encoding {self.encoding} does not keep every byte")
        self.starts = [match.start() for match in _LINE.finditer(self.text)]

    def offset(self, line: int, column: int) -> int:
        """Index in ``text`` of a position as ``ast`` states it: 1-based line, offset in UTF-8 bytes."""
        start = self.starts[line - 1]
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        return start + len(self.text[start:end].encode()[:column].decode())

    def span(self, node: ast.expr) -> tuple[int, int]:
        """Start and end index of a node; the end is exclusive."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def line_end(self, index: int) -> int:
        """Index of the line end at or after ``index``."""
        match = re.compile(r"[\r\n]|\Z").search(self.text, index)
        assert match is not None
        return match.start()

    def own_indent(self, index: int) -> str | None:
        """The line end and indentation before ``index``, if nothing else precedes it on its line."""
        match = re.search(r"(\r\n|\r|\n)([ \t\f]*)\Z", self.text[:index])
        return match.group() if match else None

    def with_edits(self, edits: list[tuple[int, int, str]]) -> bytes:
        """The file's bytes with ``text[start:end]`` replaced for each edit."""
        text = self.text
        for start, end, new in sorted(edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text.encode(self.encoding)


def _edits(text: _Text, marker: _Marker, kernel: str) -> list[tuple[int, int, str]]:
    argument = f'kernel="{kernel}"'
    if not isinstance(marker.node, ast.Call):
        _, end = text.span(marker.node)
        return [(end, end, f"({argument})")]
    for keyword in marker.node.keywords:
        if keyword.arg is None:
            raise _Unsure(f"`**{ast.unparse(keyword.value)}` may hold a kernel already")
        if keyword.arg == "kernel":
            return [_replaced(text, keyword.value, kernel)]
    return _added(text, marker.node, argument)


def _replaced(text: _Text, value: ast.expr, kernel: str) -> tuple[int, int, str]:
    if not (isinstance(value, ast.Constant) and isinstance(value.value, str | None)):
        raise _Unsure(f"its kernel is the expression `{ast.unparse(value)}`")
    start, end = text.span(value)
    quote = "'" if text.text[start] == "'" else '"'
    return start, end, f"{quote}{kernel}{quote}"


def _added(text: _Text, call: ast.Call, argument: str) -> list[tuple[int, int, str]]:
    """Adds a last argument, laid out as the call's others are."""
    start, end = text.span(call)
    last = _tokens(text, start, end)[-2][1]
    if not (call.args or call.keywords):
        # With the comma, removing the argument again can tell `()` from no parentheses at all.
        return [(last, last, f"{argument}," if last == end - 1 else argument)]
    comma = text.text[last - 1] == ","
    newline = text.own_indent(_start_of_last(text, call))
    if newline is None:
        return [(last, last, f" {argument}," if comma else f", {argument}")]
    # On a line of its own, after a comment on the argument before.
    line_end = text.line_end(last)
    place = line_end if line_end < end else last
    if comma:
        return [(place, place, f"{newline}{argument},")]
    if place == last:
        return [(last, last, f",{newline}{argument}")]
    return [(last, last, ","), (place, place, f"{newline}{argument}")]


def _removals(text: _Text, marker: _Marker) -> list[tuple[int, int, str]]:
    """The inverse of ``_edits`` if that added the argument; otherwise the tidiest removal."""
    call = marker.node
    keywords = call.keywords if isinstance(call, ast.Call) else []
    keyword = next((keyword for keyword in keywords if keyword.arg == "kernel"), None)
    if keyword is None or not isinstance(call, ast.Call):
        return []
    if not (isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str | None)):
        raise _Unsure(f"its kernel is the expression `{ast.unparse(keyword.value)}`")
    start, end = text.offset(keyword.lineno, keyword.col_offset), text.span(call)[1]
    tokens = _tokens(text, *text.span(call))
    place = next(i for i, (begin, _) in enumerate(tokens) if begin == start)
    stop = _stop(text, tokens, place)
    previous, last = tokens[place - 1][1], tokens[stop - 1][1]
    comma = tokens[stop][1] if text.text[tokens[stop][0]] == "," else None
    newline = text.own_indent(start)
    first = previous if newline is None else start - len(newline)
    if len(call.args) + len(keywords) == 1:
        exact = text.text[previous:start] + text.text[last : end - 1] == ""
        spread = (
            newline is not None
            and not (text.text[previous:start] + text.text[comma or last : end - 1]).strip()
        )
        if marker.mark.kind == "decorator" and (exact or spread):
            # A formatter spreads what was `()` over lines, by the comma.
            return [(previous, end - 1, "")] if spread and comma else [(tokens[place - 1][0], end, "")]
    elif comma and newline is None and text.text[previous - 1] == "(":
        following = tokens[stop + 1][0]
        return [(start, following if text.own_indent(following) is None else comma, "")]
    if comma or text.text[previous - 1] != ",":
        return [(first, comma or last, "")]
    return [(previous - 1, previous, ""), (first, last, "")]


def _stop(text: _Text, tokens: list[tuple[int, int]], place: int) -> int:
    """Index of the token that ends the argument beginning at ``place``: a comma or the call's parenthesis."""
    depth = 0
    for index in range(place, len(tokens)):
        character = text.text[slice(*tokens[index])]
        if depth == 0 and character in ",)":
            return index
        depth += (character in "([{") - (character in ")]}")
    raise _Unsure("its end was not found")


def _start_of_last(text: _Text, call: ast.Call) -> int:
    """Index of the start of the last argument: of its name, for a keyword."""
    starts = [text.span(node)[0] for node in call.args]
    starts += [text.offset(keyword.lineno, keyword.col_offset) for keyword in call.keywords]
    return max(starts)


def _tokens(text: _Text, start: int, end: int) -> list[tuple[int, int]]:
    """Start and end index of each token of a call, without comments and layout."""
    segment = text.text[start:end]
    starts = [match.start() for match in _LINE.finditer(segment)]
    # The tokenizer gets plain line ends; they change neither lines nor columns.
    plain = io.StringIO(segment.replace("\r\n", "\n").replace("\r", "\n"))
    found = [t for t in tokenize.generate_tokens(plain.readline) if t.type not in _LAYOUT]

    def index(position: tuple[int, int]) -> int:
        return start + starts[position[0] - 1] + position[1]

    return [(index(token.start), index(token.end)) for token in found]
