"""Extracts the code from a completion's text without executing anything.

The time is linear in the length of the text: every piece of it is parsed a bounded number of times.
"""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterator, Sequence

from kernelllm_judge.core.syntax import bound_names, read_names
from kernelllm_judge.render.fences import FencedBlock, fenced_blocks, is_fence
from kernelllm_judge.render.reasoning import split_reasoning

MAX_CHARACTERS = 400_000
"""Longer texts are rejected, because no kernel module is that long and parsing must end quickly."""

_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u00ad\x00-\x08\x0e-\x1f\x7f]")
_ODD_SPACE = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
_ODD_LINE_END = re.compile("\r\n|[\r\x0b\u2028\u2029]")
_TOKEN = re.compile(r"<\|\w{1,40}\|>|</?s>")
"""Tokens for the begin or the end of a text that some servers leave in."""

_CODE = re.compile(r"(?:import|from) [\w.]+|@triton\.|@jit|(?:class|def) \w+\s*[(:]")
"""How a line of code without a fence begins."""

_DEFINITION = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)
_MODEL = re.compile(r"^class ModelNew\b", re.MULTILINE)
_ANSWERS = frozenset({"ModelNew", "forward", "call", "kernel_function"})
_PYTHON = frozenset({"", "python", "py", "python3", "py3", "triton"})
_BUILTINS = frozenset(dir(builtins))
_CUTS = 8
"""How often cut-off code is shortened by one more statement."""


class ExtractError(ValueError):
    """Raised if a completion has no usable code; one sentence says why."""


def extract(text: str) -> str:
    """Extracts the Python code from a completion.

    The code is the text itself if it is a Python file, else, behind the model's reasoning, its fenced blocks, with
    or without a language tag, closed or not, else what looks like code without a fence. The last block with an answer
    is used, together with the blocks before it if it uses their names. Code that was cut off loses its last, incomplete
    statement.

    Returns:
        Source that parses, with Unix line ends and without invisible characters.

    Raises:
        ExtractError: there is no code, it does not parse, or the text has more than ``MAX_CHARACTERS``.
    """
    if len(text) > MAX_CHARACTERS:
        raise ExtractError(
            f"The completion has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read."
        )
    code = _readable(text)
    if _defined(parse(code)):
        return code
    thoughts, answer = split_reasoning(text)
    if thoughts and not answer.strip():
        raise ExtractError("The completion ends before its reasoning does, so it holds no answer.")
    text = _readable(answer)
    blocks = [b for b in fenced_blocks(text) if b.language in _PYTHON and b.code.strip()]
    head = _before_first_fence(text)
    unreadable = _unreadable_answer(text, blocks, head)
    defined = set(_DEFINITION.findall(text)) if unreadable else set()
    fallback = ""
    for snippet in _by_preference([block.code for block in blocks], head):
        tree = parse(snippet)
        names = _defined(tree)
        if names & _ANSWERS and not (isinstance(tree, ast.Module) and _missing(tree) & defined):
            return snippet
        if names and ("triton.jit" in snippet, not fallback) > ("triton.jit" in fallback, False):
            fallback = snippet
    if fallback and not unreadable:
        return fallback
    raise ExtractError(unreadable or _why_not(text, blocks, head))


def parse(code: str) -> ast.Module | str:
    """Returns the syntax tree, or one line that says where the code does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as invalid escapes in the completion's strings
            return ast.parse(code)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return f"it cannot be parsed ({type(error).__name__})"


def _readable(text: str) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
    text = _ODD_LINE_END.sub("\n", text).replace("\x0c", "")
    text = _ODD_SPACE.sub(" ", _INVISIBLE.sub("", text))
    for _ in range(_CUTS):
        start = _TOKEN.match(text)
        text = text[start.end() :] if start else text
        ends = [match for match in _TOKEN.finditer(text.rstrip()[-50:]) if match.end() == match.endpos]
        text = text.rstrip()[: -len(ends[0][0])] if ends else text
    return text


def _defined(tree: ast.Module | str) -> set[str]:
    """Returns the names of top-level functions and classes; none if the code does not parse."""
    body = [] if isinstance(tree, str) else tree.body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


# --------------------------------------------------------------------------- which snippet


def _by_preference(blocks: Sequence[str], head: str) -> Iterator[str]:
    """Yields snippets from the most to the least likely answer.

    Whole answers come first, from the last block to the first and with kernels before those without, then
    shortened cut-off code. ``head``, the text before the first fence, is code if the prompt opened the fence
    or if the model never writes one.
    """
    parsed = [(code, tree) for code in blocks if isinstance(tree := parse(code), ast.Module)]
    whole = list(_answers(parsed))
    yield from (code for code, kernels in whole if kernels)
    if "triton.jit" in head:
        yield head
    yield from (code for code, _ in whole)
    readable = {code for code, _ in parsed}
    yield from (_without_cut_off_end(code) for code in reversed(blocks) if code not in readable)
    yield _up_to_prose(_from_first_code(head))
    yield from (code for code, _ in reversed(parsed))


def _answers(parsed: Sequence[tuple[str, ast.Module]]) -> Iterator[tuple[str, bool]]:
    """Yields blocks with an answer, the last one first, and whether they include kernels.

    The last block that uses names from blocks before it is joined with these.
    """
    first_bound: dict[str, int] = {}
    first_defined: dict[str, int] = {}
    for index, (_, tree) in enumerate(parsed):
        for name in bound_names(tree):
            first_bound.setdefault(name, index)
        for name in _defined(tree):
            first_defined.setdefault(name, index)
    for index in reversed(range(len(parsed))):
        code, tree = parsed[index]
        if not _defined(tree) & _ANSWERS:
            continue
        missing = _missing(tree)
        kernels = "triton.jit" in code or any(first_defined.get(name, index) < index for name in missing)
        if any(first_bound.get(name, index) < index for name in missing):
            # Only once, because joining many such blocks would take quadratic time.
            code = "\n".join(code for code, _ in parsed[: index + 1])
            first_bound = {}
        yield code, kernels


def _missing(tree: ast.Module) -> set[str]:
    """Returns the names that a snippet reads and does not bind."""
    return read_names(tree) - bound_names(tree) - _BUILTINS


# --------------------------------------------------------------------------- code among other text


def _before_first_fence(text: str) -> str:
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if is_fence(line)), len(lines))
    return "\n".join(lines[:first]) + "\n"


def _from_first_code(text: str) -> str:
    """Returns the text from the first line that begins like code."""
    lines = text.split("\n")
    start = next((i for i, line in enumerate(lines) if _CODE.match(line)), len(lines))
    return "\n".join(lines[start:])


def _without_cut_off_end(code: str) -> str:
    """Removes the last top-level statement with its decorators; returns "" if the rest does not parse either."""
    lines = code.split("\n")
    starts = [i for i, line in enumerate(lines) if line[:1].isalpha() or line[:1] in ("@", "_")]
    for start in reversed(starts[-4:]):
        shorter = "\n".join(lines[:start])
        if not isinstance(parse(shorter), str):
            return shorter
    return ""


def _up_to_prose(text: str) -> str:
    """Removes the first statement that does not parse and everything after it, for code that is followed by prose."""
    for _ in range(_CUTS):
        tree = parse(text)
        if isinstance(tree, ast.Module):
            return text
        at = re.match(r"line (\d+):", tree)
        lines = text.split("\n")[: int(at[1]) if at else 0]
        while lines and not lines[-1][:1].strip():
            lines.pop()
        text = "\n".join(lines[:-1])
    return ""


def _unreadable_answer(text: str, blocks: Sequence[FencedBlock], head: str) -> str:
    """Returns why code with a class ``ModelNew`` does not parse; empty if there is none such."""
    for code in [*(block.code for block in reversed(blocks)), head if blocks else text]:
        if _MODEL.search(code) and isinstance(error := parse(code), str):
            return f"The completion's code does not parse: {error}{_cut_off(blocks)}."
    return ""


def _why_not(text: str, blocks: Sequence[FencedBlock], head: str) -> str:
    if not text.strip():
        return "The completion is empty."
    code = blocks[-1].code if blocks else head
    error = parse(code)
    if not blocks and "def " not in code:
        return "The completion holds no code."
    if isinstance(error, str):
        return f"The completion's code does not parse: {error}{_cut_off(blocks)}."
    return f"The completion's code defines no class and no function{_cut_off(blocks)}."


def _cut_off(blocks: Sequence[FencedBlock]) -> str:
    return " (the text ends before its fence is closed)" if blocks and not blocks[-1].closed else ""
