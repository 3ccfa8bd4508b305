"""Small accidents to a text of Python, as language models have them: a line lost, two tokens swapped, an argument dropped."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_TOKEN = re.compile(r"\w+|[^\w\s]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"\b\d+(\.\d+)?\b")
_ARGUMENT = re.compile(r",[^,()\[\]\n]+|(?<=\()[^,()\[\]\n]+(?=[,)])")
_NUMBERS = ("0", "1", "-1", "3", "1e400", "2**31", "1.5", "10**40", "1j", "None", "'x'", "()", "-0.0")


def mutated(text: str, random: random.Random) -> str:
    """Returns ``text`` after one to three accidents."""
    for _ in range(random.choice((1, 1, 2, 3))):
        text = random.choice(_MUTATIONS)(text, random)
    return text


def _line(text: str, random: random.Random) -> str:
    """Deletes, repeats, moves or indents a line."""
    lines = text.split("\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(5):
        case 0 | 1:
            del lines[at]
        case 2:
            lines.insert(at, lines[at])
        case 3:
            lines.insert(other, lines.pop(at))
        case 4:
            lines[at] = lines[at].removeprefix("    ") if random.random() < 0.5 else "    " + lines[at]
    return "\n".join(lines)


def _swap(text: str, random: random.Random) -> str:
    """Swaps two tokens that are near each other."""
    found = list(_TOKEN.finditer(text))
    if len(found) < 2:
        return text
    at = random.randrange(len(found) - 1)
    a, b = found[at], found[min(at + random.choice((1, 2, 4)), len(found) - 1)]
    return text[: a.start()] + b[0] + text[a.end() : b.start()] + a[0] + text[b.end() :]


def _replaced(
    pattern: re.Pattern[str], others: Callable[[str], list[str]]
) -> Callable[[str, random.Random], str]:
    def replace(text: str, random: random.Random) -> str:
        found = list(pattern.finditer(text))
        if not found:
            return text
        at = random.choice(found)
        return text[: at.start()] + random.choice(others(text)) + text[at.end() :]

    return replace


def _cut(text: str, random: random.Random) -> str:
    """Ends in the middle."""
    return text[: random.randrange(len(text) // 2, len(text))] if len(text) > 2 else text


_MUTATIONS = (
    _line,
    _line,
    _swap,
    _swap,
    _replaced(_TOKEN, lambda text: [""]),
    _replaced(_TOKEN, _TOKEN.findall),
    _replaced(_NAME, _NAME.findall),
    _replaced(_NAME, _NAME.findall),
    _replaced(_NUMBER, lambda text: list(_NUMBERS)),
    _replaced(_ARGUMENT, lambda text: [""]),
    _replaced(_ARGUMENT, _ARGUMENT.findall),
    _cut,
)
