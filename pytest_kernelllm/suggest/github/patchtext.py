"""A patch read line by line: whether it has the one form that suggestions have, and which files it names.

git decides what a patch does; this only makes sure that it is asked about nothing but added and edited text files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_kernelllm.suggest.github.errors import Refused

LARGEST = 4 * 2**20
"""Bytes of a patch."""
MOST_FILES = 500

_START = b"diff --git "
_INDEX = re.compile(rb"index [0-9a-f]{7,64}\.\.[0-9a-f]{7,64}(?: 100(?:644|755))?")
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@.*")
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|[abfnrtv\"\\])")
_LETTERS = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}
_NO_LINE_END = b"\\ No newline at end of file"


def paths_of(patch: bytes) -> set[str]:
    """The files that a patch adds or edits.

    Raises:
        Refused: it does anything else, or is not written as suggestions are.
    """
    if len(patch) > LARGEST:
        raise Refused(f"The patch has {len(patch):,} bytes; at most {LARGEST:,} are taken.")
    if b"\0" in patch:
        raise Refused("The patch is not text.")
    if not patch.endswith(b"\n"):
        raise Refused("The patch breaks off.")
    lines = _Lines(patch)
    found: set[str] = set()
    while lines.more:
        path = _file(lines)
        if path in found:
            raise lines.refused("the same file a second time")
        found.add(path)
        if len(found) > MOST_FILES:
            raise Refused(f"The patch changes more than {MOST_FILES} files.")
    return found


class _Lines:
    """The lines of a patch and where one is."""

    def __init__(self, patch: bytes) -> None:
        self._lines = patch.split(b"\n")[:-1]
        self._next = 0

    @property
    def more(self) -> bool:
        return self._next < len(self._lines)

    @property
    def ahead(self) -> bytes:
        return self._lines[self._next] if self.more else b""

    def take(self) -> bytes:
        if not self.more:
            raise self.refused("its end too early")
        self._next += 1
        return self._lines[self._next - 1]

    def refused(self, what: str) -> Refused:
        return Refused(f"Line {self._next} of the patch has {what}, which no suggestion has.")


def _file(lines: _Lines) -> str:
    """Read one file's part."""
    line = lines.take()
    names = line.removeprefix(_START)
    middle = len(names) // 2  # both names are of one length, and may hold blanks
    if not line.startswith(_START) or names[middle : middle + 1] != b" ":
        raise lines.refused("something other than the begin of a file")
    before, after = _unquoted(lines, names[:middle]), _unquoted(lines, names[middle + 1 :])
    path = after.removeprefix("b/")
    if before != f"a/{path}" or after != f"b/{path}":
        raise lines.refused("two different names")
    added = lines.ahead.startswith(b"new file mode ")
    if added and lines.take() != b"new file mode 100644":
        raise lines.refused("a new file that is no plain one")
    if lines.ahead.startswith(b"index ") and not _INDEX.fullmatch(lines.take()):
        raise lines.refused("an unknown mode")
    for sign, name in ((b"--- ", "/dev/null" if added else before), (b"+++ ", after)):
        line = lines.take()
        if not line.startswith(sign) or _unquoted(lines, line[4:].removesuffix(b"\t")) != name:
            raise lines.refused("a change of something other than text")
    hunks = sum(1 for _ in _hunks(lines))
    if not hunks:
        raise lines.refused("a file without a change")
    return path


def _hunks(lines: _Lines) -> Iterator[None]:
    while lines.ahead.startswith(b"@@ "):
        hunk = _HUNK.fullmatch(lines.take())
        if hunk is None:
            raise lines.refused("a broken hunk")
        old, new = (int(number[:9]) if number is not None else 1 for number in hunk.groups())
        while old > 0 or new > 0:
            line = lines.take()
            if line == _NO_LINE_END:
                continue
            sign = line[:1]
            if sign not in (b" ", b"-", b"+"):
                raise lines.refused("a broken hunk")
            old -= sign in b" -"
            new -= sign in b" +"
        if old or new:
            raise lines.refused("a hunk of another length than it says")
        if lines.ahead == _NO_LINE_END:
            lines.take()
        yield


def _unquoted(lines: _Lines, name: bytes) -> str:
    if name.startswith(b'"'):
        name = _ESCAPE.sub(lambda match: bytes([_value(match[1])]), name[1:-1])
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise lines.refused("a name that is not UTF-8") from None


def _value(escape: bytes) -> int:
    return _LETTERS[escape] if escape in _LETTERS else int(escape, 8)
