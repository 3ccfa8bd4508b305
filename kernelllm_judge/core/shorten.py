"""Shortens what others wrote (torch, a server, a person's path) for a line that somebody reads."""

from __future__ import annotations

import re

LONGEST = 300
"""Characters of a message that is quoted in a sentence."""

_END = re.compile(r"[.!?;](?= )|(?<=:)(?= )")


def whole(text: object, most: int = LONGEST) -> str:
    """Returns a text as one line of at most so many characters: whole sentences, or for lack of one whole words and ``…``."""
    line = " ".join(str(text).split())
    if len(line) <= most:
        return line
    ends = [end.end() for end in _END.finditer(line, 0, most)]
    if ends and ends[-1] > most // 2:
        return line[: ends[-1]].rstrip(".;:")
    words = line[: max(most - 1, 0)]
    at_word = words.rpartition(" ")[0].rstrip(",;:")
    return f"{at_word or words}…" if most > 0 else ""


def path(text: str, most: int) -> str:
    """Returns a path, or a name and then a path, that is shortened from the left of the path: a file's name says most."""
    if len(text) <= most:
        return text
    name, space, place = text.partition(" ")
    if not place or "/" in name:
        name, space, place = "", "", text
    room = most - len(name) - len(space) - 1
    if name and room < 8:  # the name alone
        return name if len(name) <= most else f"…{name[len(name) - most + 1 :]}"
    kept = place[len(place) - room :]
    at_folder = kept[max(kept.find("/"), 0) :]
    return f"{name}{space}…{at_folder if len(at_folder) > room * 2 // 3 else kept}"
