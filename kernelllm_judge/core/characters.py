"""Finds characters that make a text look like another one to the person who reads it."""

from __future__ import annotations

import io
import tokenize
import unicodedata
from collections.abc import Iterator

_RIGHT_TO_LEFT = ("R", "AL", "AN")
"""Bidirectional classes of letters and digits."""
_ALPHABETS = frozenset(["LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "DESERET"])
"""Those with letters that look like Latin ones, as Unicode's names of characters begin."""
_LATIN = "ßæøœđłðþŧħ"
"""Lower-case Latin letters that are neither ASCII nor ASCII with an accent."""


def invisible(text: str) -> str | None:
    """Returns the first character of a text that nobody sees; None if there is none.

    Line ends and tabs are fine, but no carriage return alone: Python ends a line there, and a diff shows none.
    """
    shown = text.replace("\r\n", "\n")
    return next((c for c in shown if not c.isprintable() and c not in "\n\t"), None)


def reordering(text: str) -> str | None:
    """Returns the first letter or digit of a text that changes the order in which its line is shown; None if none does."""
    return next((c for c in text if unicodedata.bidirectional(c) in _RIGHT_TO_LEFT), None)


def look_alike(word: str) -> str | None:
    """Returns the first letter of a name that may be taken for another one; None if there is none.

    Those are letters of other alphabets with Latin ones (the Cyrillic A), and variants that Python reads as
    plain letters. Latin letters with accents and scripts without such letters are fine.
    """
    for character in word:
        if character.isascii() or character.lower() in _LATIN:
            continue
        plain = unicodedata.normalize("NFD", character)[0]
        script = unicodedata.name(character, "").partition(" ")[0]
        variant = unicodedata.normalize("NFKC", character) != unicodedata.normalize("NFC", character)
        if variant or (script in _ALPHABETS and not plain.isascii()):
            return character
    return None


def described(character: str) -> str:
    """Returns a character's number and name, to be shown in place of it."""
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".strip()


def in_source(source: str) -> tuple[int, str] | None:
    """Returns line and reason of the first character in a source that nobody sees; None if there is none."""
    for number, line in enumerate(source.replace("\r\n", "\n").split("\n"), 1):
        if character := invisible(line):
            return number, f"contains the invisible character {described(character)}"
    return None


def in_names(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and reason of each name of a program that may be taken for another one; comments may have any.

    Raises:
        tokenize.TokenError, SyntaxError: the source is no Python.
    """
    if source.isascii():
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and (character := look_alike(token.string)):
            yield token.start[0], f"has a name with {described(character)}, which looks like another letter"
