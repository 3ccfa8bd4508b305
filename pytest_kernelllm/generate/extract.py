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

    Takes the text itself where it is a Python file; else its fenced blocks, with or without a language tag and
    closed or not, of which the last with an answer wins (blocks before it are put in front when it builds on
    them). Code that was cut off loses its last, incomplete statement.

    Returns:
        Source that parses, with Unix line ends and without invisible characters.

    Raises:
        ExtractError: no code, code that does not parse, or a text beyond ``MAX_CHARACTERS``.
    """
    if len(text) > MAX_CHARACTERS:
        raise ExtractError(f"The completion is {len(text):,} characters long; at most {MAX_CHARACTERS:,} are read.")
    text = _readable(text)
    if _defines(text):
        return text
    blocks = fenced_blocks(text)
    code = [block for block in blocks if block.language.lower() in _PYTHON and block.code.strip()]
    for snippet in _by_preference(code):
        if _answers(snippet):
            return snippet
    # A model that continues a prompt ending in an opening fence starts with code and only closes the fence.
    head = "\n".join(_before_first_fence(text))
    leftovers = [head, *(block.code for block in reversed(code))]
    for snippet in leftovers:
        if (whole := _without_cut_off_end(snippet)) and _answers(whole):
            return whole
    for snippet in [*(block.code for block in reversed(code)), head]:
        if _defines(snippet):
            return snippet
    raise ExtractError(_why_not(text, code, head))


def fenced_blocks(text: str) -> list[Block]:
    """Every fenced block of a Markdown text, in order; the last one may be unclosed."""
    blocks, inside, fence, language = [], [], "", ""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if not fence:
            if match:
                fence, language, inside = match[1], match[2], []
        elif match and match[1].startswith(fence) and not match[2]:
            blocks.append(Block(language, "\n".join(inside) + "\n", True))
            fence = ""
        else:
            inside.append(line)
    if fence:
        blocks.append(Block(language, "\n".join(inside) + "\n", False))
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


def _names(code: str) -> set[str]:
    tree = parse(code)
    if isinstance(tree, str):
        return set()
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in tree.body if isinstance(node, definitions)}


def _defines(code: str) -> bool:
    return bool(_names(code))


def _answers(code: str) -> bool:
    return bool(_names(code) & {"ModelNew", "forward", "call"})


def _by_preference(blocks: Sequence[Block]) -> list[str]:
    """Answers from the most to the least likely: the last block that stands alone, then blocks joined, then any."""
    alone = [b.code for b in reversed(blocks)]
    joined = ["\n".join(b.code for b in blocks[: end + 1]) for end in reversed(range(1, len(blocks)))]
    return [*(c for c in alone if "triton" in c), *joined, *alone]


def _before_first_fence(text: str) -> list[str]:
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if _FENCE.match(line)), len(lines))
    return [*lines[:first], ""]


def _without_cut_off_end(code: str) -> str:
    """The code up to the last top-level statement before the first syntax error, or "" where nothing is left."""
    lines = code.split("\n")
    for _ in range(3):
        try:
            compile_error = parse("\n".join(lines))
        except RecursionError:
            return ""
        if not isinstance(compile_error, str):
            return "\n".join(lines).rstrip("\n") + "\n" if any(line.strip() for line in lines) else ""
        starts = [i for i, line in enumerate(lines) if line[:1].isalpha() or line[:1] in ("@", "_")]
        while starts and lines[starts[-1] - 1].startswith("@"):
            starts.pop()
        if not starts:
            return ""
        lines = lines[: starts[-1]]
    return ""


def _why_not(text: str, blocks: Sequence[Block], head: str) -> str:
    if not text.strip():
        return "The completion is empty."
    if blocks:
        last = blocks[-1]
        error = parse(last.code)
        cut = "" if last.closed else ", and the text ends before its fence is closed"
        if isinstance(error, str):
            return f"The completion's code does not parse: {error}{cut}."
        return f"The completion's code defines no class and no function{cut}."
    error = parse(head)
    if "def " in head and isinstance(error, str):
        return f"The completion's code does not parse: {error}."
    return "The completion holds no code."
