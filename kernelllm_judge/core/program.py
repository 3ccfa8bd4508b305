"""The program that a kernel module's text contains, named by a digest that no formatter changes.

Two texts with one digest run alike: they differ in layout, comments, spelling of literals and docstrings at most. The
digest is the same under every version of Python that reads both, which ``ast.dump`` is not.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from typing import Any

from kernelllm_judge.core.syntax import first_line
from kernelllm_runtime.source.syntax import parse as parse

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What reading a text as a program can raise."""

_LAYOUT_FIELDS = ("ctx", "kind", "type_comment", "type_ignores")
"""What a node holds beyond the program: whether a name is read or written shows by its place."""

_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LIKE_DEF = re.compile(r"\s*def(?:\s|$)")
_PLAIN_DEF = re.compile(r"[ \t]*def +\w+ *\(")
_READ_AGAIN = 4
"""How often a line is read again at most, on average: as often as functions nest around it. Bounds the time."""

_TOP_COMMENTS = re.compile(r"\A(?:#.*\n)+")


class NotPlain(ValueError):
    """Text that Python might read in another way than its reader does; the text says why."""


def plain_text(content: bytes) -> str:
    """Decodes a Python file that everybody reads alike: UTF-8, with lines that end where they seem to.

    Returns:
        The text, with ``\\n`` at every line's end.

    Raises:
        NotPlain: it declares another encoding, is not UTF-8, or holds a character that ends a line for some readers only.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise NotPlain(f"it is not UTF-8 ({error})") from None
    if encoding != "utf-8":
        raise NotPlain(f"it declares the encoding {encoding}")
    text = text.replace("\r\n", "\n")
    if "\0" in text or len(text.splitlines()) != len(io.StringIO(text, newline="\n").readlines()):
        raise NotPlain("it holds a control character that some readers take for the end of a line")
    return text


def program_digest(source: str | bytes) -> str:
    """Returns the SHA-256 of the program, in hex: of the syntax tree without layout, comments and docstrings.

    Where layout or docstrings can matter to what runs, it is that of the whole text after the comments at its top: in a
    program that may read ``__doc__``, and in one that Triton may misread.

    Raises:
        NotPlain: it is not plain text, see ``plain_text``.
        SyntaxError, ValueError, RecursionError, MemoryError: as ``parse``.
    """
    text = plain_text(source.encode() if isinstance(source, str) else source)
    tree = parse(text)
    written = "\n".join(_pieces(tree))
    whole = "__doc__" in written or _misleads(tree, text)
    return hashlib.sha256((_TOP_COMMENTS.sub("", text) if whole else written).encode()).hexdigest()


def program_name(source: str) -> str:
    """Returns ``program_digest``, or a digest of the bytes where no program can be read: 64 hex digits for any text."""
    try:
        return program_digest(source)
    except UNREADABLE:
        # No text has a byte 255: one that is written as a syntax tree is here does not get that program's name.
        return hashlib.sha256(b"\xff" + source.encode(errors="surrogatepass")).hexdigest()


def _misleads(tree: ast.Module, text: str) -> bool:
    """Whether Triton may read another program in a function's text than Python does.

    Triton and its interpreter take the lines of a function and its decorators, remove the common indentation and blanks
    on empty lines, also within strings, and read on from the first or the last line that begins as a function does.
    """
    lines = text.split("\n")
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    spans = [(node.end_lineno or node.lineno) - first_line(node) + 1 for node in functions]
    if sum(spans) > _READ_AGAIN * len(lines):
        return True
    found = {number for number, line in enumerate(lines, 1) if _LIKE_DEF.match(line)}
    return found != {function.lineno for function in functions} or not all(
        _reads_alike(function, lines) for function in functions
    )


def _reads_alike(function: ast.FunctionDef, lines: list[str]) -> bool:
    """Whether a function whose lines are read again as Triton does is the same function."""
    start, end = first_line(function) - 1, function.end_lineno
    if not _PLAIN_DEF.match(lines[function.lineno - 1]):
        return False
    if function.decorator_list and not lines[start].lstrip(" \t").startswith("@"):
        return False  # where its text begins depends on the version of Python
    # Versions of Python differ in which blanks make a line empty; here all do.
    block = textwrap.dedent("\n".join(line if line.strip() else "" for line in lines[start:end]))
    bare = copy.copy(function)
    bare.decorator_list = []
    try:
        again = parse("\n".join(block.split("\n")[function.lineno - 1 - start :]))
    except UNREADABLE:
        return False
    return list(_pieces(again)) == list(_pieces(ast.Module([bare], [])))


def _pieces(tree: ast.Module) -> Iterator[str]:
    """Writes a syntax tree down piece by piece; without recursion, because expressions nest deeply."""
    todo: list[Any] = [tree]
    while todo:
        item = todo.pop()
        if isinstance(item, _Mark):
            yield item
        elif isinstance(item, list):
            todo += [_END, *reversed(item), _LIST]
        elif isinstance(item, ast.AST):
            todo.append(_END)
            # Versions of Python differ in which fields a node has, but not in which hold something.
            for name, value in reversed(list(ast.iter_fields(item))):
                if name not in _LAYOUT_FIELDS and value is not None and value != []:
                    todo += [_counted(item, value), _Mark(name)]
            yield f"({type(item).__name__}"
        else:
            # Not `repr`: it refuses long integers, and escapes what the Unicode of its Python does not know.
            yield f"{type(item).__name__} {hex(item) if type(item) is int else ascii(item)}"


class _Mark(str):
    """A piece of the written tree itself, as opposed to a value in it."""


_LIST, _END = _Mark("["), _Mark(")")


def _counted(node: ast.AST, value: Any) -> Any:
    """A field as it counts: without its docstring, ``del (a, b)`` as ``del a, b``, and no empty pieces of f-strings."""
    if (
        isinstance(node, _DOCUMENTED)
        and value is node.body
        and ast.get_docstring(node, clean=False) is not None
    ):
        return value[1:]
    if isinstance(node, ast.Delete) and len(value) == 1 and isinstance(value[0], ast.Tuple):
        return value[0].elts
    if isinstance(node, ast.JoinedStr):  # CPython 3.12 has some
        return [piece for piece in value if not (isinstance(piece, ast.Constant) and piece.value == "")]
    return value
