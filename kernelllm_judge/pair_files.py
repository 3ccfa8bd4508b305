"""Reads the two files that a person names: a reference and a candidate for it."""

from __future__ import annotations

from pathlib import Path

from kernelllm_judge.core.targets import Target
from kernelllm_runtime.source.scan import scan_file

LARGEST = 4 * 1024 * 1024
"""Bytes; no larger file is read."""


class PairError(ValueError):
    """A file cannot be read or holds no reference; one sentence."""


def find_reference(reference: str, root: Path | None = None) -> Target:
    """Returns the target that a person names, without importing its file.

    Args:
        reference: ``file.py`` in KernelBench's form or with one marked class, or ``file.py::Class``.
        root: the folder that the target's path is relative to; None is the file's own.

    Raises:
        PairError: there is no such file, or no such target in it.
    """
    file, _, name = reference.partition("::")
    path = Path(file).absolute()
    if not path.is_file():
        raise PairError(f"There is no file {printable(file)}.")
    found = scan_file(path, root or path.parent, kernelbench=name in ("", "Model"))
    if found.problems and not found.targets:
        raise PairError(printable(found.problems[0]))
    if name:
        match = [target for target in found.targets if target.name == name]
        if not match:
            names = ", ".join(target.name for target in found.targets) or "none"
            raise PairError(f"{printable(file)} has no target {name}; its targets: {names}.")
        return match[0]
    benches = [target for target in found.targets if target.kind == "kernelbench"]
    if benches or len(found.targets) == 1:
        return (benches or found.targets)[0]
    raise PairError(
        f"{printable(file)} is not in KernelBench's form (Model, get_inputs, get_init_inputs); "
        f"name a marked class as {printable(file)}::Class."
    )


def read(file: Path) -> bytes:
    """Returns what a file holds.

    Raises:
        PairError: it is not there, no regular file, too large or unreadable.
    """
    shown = printable(file)
    try:
        if not file.exists():
            raise PairError(
                f"there is no file {shown}" + (", only a broken link" if file.is_symlink() else "")
            )
        if not file.is_file():
            raise PairError(f"{shown} cannot be read: it is no regular file")
        with file.open("rb") as opened:
            content = opened.read(LARGEST + 1)
    except OSError as error:
        raise PairError(f"{shown} cannot be read: {error.strerror}") from None
    if len(content) > LARGEST:
        raise PairError(f"{shown} cannot be read: it is larger than {LARGEST >> 20} MiB")
    return content


def read_text(file: Path) -> str:
    """Returns a file's text.

    Raises:
        PairError: it cannot be read, or is not UTF-8.
    """
    try:
        return read(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise PairError(
            f"{printable(file)} cannot be read: it is not UTF-8 ({error.reason} at byte {error.start})"
        ) from None


def printable(text: object) -> str:
    """Returns a text with what is not UTF-8 in it escaped, so that it can be printed."""
    return str(text).encode(errors="backslashreplace").decode()
