"""Reverts an adoption: removes ``kernel=`` from the marker, and the kernel's file if nothing else needs it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelllm_judge.core.kernel_module import unmodified
from kernelllm_judge.core.records import Target
from kernelllm_runtime.source.resolve import label
from pytest_kernelllm.discover.adoption import adopted_file, made_for
from pytest_kernelllm.discover.scan import python_files
from pytest_kernelllm.suggest.edit import remove_kernel
from pytest_kernelllm.suggest.files import FileChange, PatchError, change_files, content
from pytest_kernelllm.suggest.patch import PACKAGE
from pytest_kernelllm.suggest.style import Style


@dataclass
class Reversal:
    """The changes that revert adoptions."""

    files: dict[str, FileChange] = field(default_factory=dict)
    """Bytes before and after (None: the file is deleted), by POSIX path relative to the project root."""
    kept: list[str] = field(default_factory=list)
    """A sentence for each kernel module that stays, with the reason."""


def reversal(
    root: Path,
    chosen: Sequence[Target],
    targets: Sequence[Target],
    *,
    force: bool = False,
    style: Style | None = None,
) -> Reversal:
    """Plans the changes that revert adoptions; nothing is written yet.

    Args:
        targets: all targets of the project, including the chosen ones.
        force: also delete kernel modules that were edited by hand.
        style: formats edited files that are formatted now; without one only the argument goes.

    Raises:
        EditError: a marker cannot be edited safely.
        PatchError: a file cannot be read.
    """
    plan = Reversal()
    kernels: dict[Path, str] = {}
    for target in chosen:
        old, source = plan.files.get(target.path) or (content(root / target.path),) * 2
        if old is None or source is None:
            raise PatchError(f"{target.path}: the file of {target.name} is gone; there is nothing to revert.")
        edited = remove_kernel(source, target, root)
        plan.files[target.path] = (old, style.edited(target.path, source, edited) if style else edited)
        if (file := adopted_file(root, target)) is not None:
            kernels[file] = target.kernel or ""
    going = {target.id for target in chosen}
    staying = {adopted_file(root, target): target.id for target in targets if target.id not in going}
    for file, dotted in kernels.items():
        path = label(file, root)
        user = staying.get(file) or _importer(root, file, dotted, plan)
        if why := f"{user} uses it" if user else _protected(root, file, force):
            plan.kept.append(f"{path} stays: {why}.")
        else:
            plan.files[path] = (content(file), None)
    for folder in sorted({file.parent for file in kernels}):
        _leave_no_package(root, folder, plan)
    return plan


def undo(root: Path, plan: Reversal) -> None:
    """Carries a plan out, all of it or nothing, and removes folders that are empty then.

    Raises:
        PatchError: a file cannot be written.
    """
    change_files(root, plan.files)
    for folder in {(root / path).parent for path, (_, new) in plan.files.items() if new is None}:
        compiled = folder / "__pycache__"
        with contextlib.suppress(OSError):
            if not any(path != compiled for path in folder.iterdir()):
                for path in compiled.glob("*.pyc"):
                    path.unlink()
                if compiled.is_dir():
                    compiled.rmdir()
                folder.rmdir()


def _protected(root: Path, file: Path, force: bool) -> str:
    """The reason why a kernel module that nothing uses stays; it completes a sentence. Empty if it may go."""
    if not file.resolve().is_relative_to(root.resolve()):
        return "it lies outside the project"
    text = file.read_bytes()
    if made_for(text) is None:
        return "it is not a generated kernel"
    return "" if force or unmodified(text) else "it was edited by hand (--force deletes it)"


def _importer(root: Path, kernel: Path, dotted: str, plan: Reversal) -> str | None:
    """A Python file of the project that names the kernel module other than by a marker's ``kernel=``."""
    folder, name = (re.escape(part.encode()) for part in (kernel.parent.name, kernel.stem))
    mention = re.compile(
        rb"([\w.]*)\b%s(?:[./]|\s+import\b[^\n(]*?|\s+import\s*\([^)]*?)\b%s\b" % (folder, name)
    )
    above = dotted.encode().removesuffix(f"{kernel.parent.name}.{kernel.stem}".encode())
    for file in python_files(root):
        path = label(file, root)
        text = plan.files[path][1] if path in plan.files else _readable(file)
        if not text or file == kernel or kernel.parent.name.encode() not in text:
            continue
        found = mention.finditer(_ADOPTION.sub(b"", text))
        # A longer dotted path belongs to another package; a relative one may mean this.
        if any(match[1] in (b"", above) or match[1].startswith(b".") for match in found):
            return path
    return None


_ADOPTION = re.compile(rb"""\bkernel\s*=\s*(["'])[^"'\n]*\1""")


def _readable(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _leave_no_package(root: Path, folder: Path, plan: Reversal) -> None:
    """Plans to delete an ``__init__.py`` that adoption created, if nothing else is left beside it."""
    package = folder / "__init__.py"
    left = {path for path in folder.iterdir() if path.name != "__pycache__"} - {package}
    gone = {root / path for path, (_, new) in plan.files.items() if new is None}
    text = _readable(package)
    if left <= gone and text is not None and text.replace(b"\r\n", b"\n") == PACKAGE:
        plan.files[label(package, root)] = (text, None)
