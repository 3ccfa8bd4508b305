"""Takes the code out of a completion's text. Looks at text only: nothing is ever executed."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

MAX_CHARACTERS = 400_000
"""Longer texts are refused: no kernel module is that long, and parsing has to end quickly."""

_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u00ad\x00-\x08\x0e-\x1f\x7f]")
_ODD_SPACE = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")
_ANSWERS = frozenset({"ModelNew", "forward", "call"})
_PYTHON = frozenset({"", "python", "py", "python3", "triton"})


class ExtractError(ValueError):
    """A completion holds no usable code; the text is one sentence that says why."""


@dataclass(frozen=True)
class Block:
    """A fenced block: the word after the fence, the lines inside, and whether the fence was ever closed."""

    language: str
    code: str
    closed: bool


def extract(text: str) -> str:
    """The Python code in a completion.

    Takes the text itself where it is a Python file, else its fenced blocks, with or without a language tag,
    closed or not. The last block with an answer in it wins, after the blocks that it builds on. Code that was
    cut off loses its last, incomplete statement.

    Returns:
        Source that parses, with Unix line ends and without invisible characters.

    Raises:
        ExtractError: no code, code that does not parse, or a text beyond ``MAX_CHARACTERS``.
    """
    if len(text) > MAX_CHARACTERS:
        raise ExtractError(
            f"The completion has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read."
        )
    text = _readable(text)
    if _definitions(text):
        return text
    blocks = [b for b in fenced_blocks(text) if b.language.lower() in _PYTHON and b.code.strip()]
    head = _before_first_fence(text)
    snippets = _by_preference([block.code for block in blocks], head)
    for snippet in snippets:
        if _definitions(snippet) & _ANSWERS:
            return snippet
    for snippet in snippets:
        if _definitions(snippet):
            return snippet
    raise ExtractError(_why_not(text, blocks, head))


def fenced_blocks(text: str) -> list[Block]:
    """Every fenced block of a Markdown text, in order; an unclosed one ends where the next begins."""
    blocks: list[Block] = []
    fence, language, inside = "", "", list[str]()
    for line in [*text.split("\n"), None]:
        match = _FENCE.match(line) if line is not None else None
        opens = match is not None and (not fence or match[2] != "")
        closes = match is not None and not opens and match[1].startswith(fence)
        if fence and (opens or closes or line is None):
            blocks.append(Block(language, "\n".join(inside) + "\n", closes))
            fence = ""
        elif fence and line is not None:
            inside.append(line)
        if match is not None and opens:
            fence, language, inside = match[1], match[2], []
    return blocks


def parse(code: str) -> ast.Module | str:
    """The syntax tree, or one line that says where the code does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a completion's "\d" is its own affair
            return ast.parse(code)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return f"it cannot be parsed ({type(error).__name__})"


def _readable(text: str) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0b", "\n").replace("\x0c", "")
    return _ODD_SPACE.sub(" ", _INVISIBLE.sub("", text))


def _definitions(code: str) -> set[str]:
    """Names of top-level functions and classes; none where the code does not parse."""
    tree = parse(code)
    body = [] if isinstance(tree, str) else tree.body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _by_preference(blocks: Sequence[str], head: str) -> list[str]:
    """Snippets from the most to the least likely answer.

    Whole answers come first, from the last block to the first; then blocks joined with all before them; then
    what is left of cut-off code. ``head`` is code when a model goes on from a prompt that opened the fence.
    """
    latest_first = [*reversed(blocks), head]
    joined = ["\n".join(blocks[:end]) for end in range(len(blocks), 1, -1)]
    whole = [code for code in latest_first if "triton.jit" in code]
    return [*whole, *joined, *latest_first, *(_without_cut_off_end(code) for code in latest_first)]


def _before_first_fence(text: str) -> str:
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if _FENCE.match(line)), len(lines))
    return "\n".join(lines[:first]) + "\n"


def _without_cut_off_end(code: str) -> str:
    """The code without its last top-level statement and that one's decorators; "" if that does not help."""
    lines = code.split("\n")
    starts = [i for i, line in enumerate(lines) if line[:1].isalpha() or line[:1] in ("@", "_")]
    for start in reversed(starts[-4:]):
        shorter = "\n".join(lines[:start])
        if not isinstance(parse(shorter), str):
            return shorter
    return ""


def _why_not(text: str, blocks: Sequence[Block], head: str) -> str:
    if not text.strip():
        return "The completion is empty."
    code = blocks[-1].code if blocks else head
    error = parse(code)
    if not blocks and "def " not in code:
        return "The completion holds no code."
    cut_off = " (the text ends before its fence is closed)" if blocks and not blocks[-1].closed else ""
    if isinstance(error, str):
        return f"The completion's code does not parse: {error}{cut_off}."
    return f"The completion's code defines no class and no function{cut_off}."
