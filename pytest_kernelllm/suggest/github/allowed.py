"""What a suggestion may change: new kernel modules that pass the judge's screen, and the marker that names them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from pytest_kernelllm.core.kernel_module import unmodified
from pytest_kernelllm.core.records import Target
from pytest_kernelllm.discover.adoption import made_for
from pytest_kernelllm.discover.marks import Mark, find_marks
from pytest_kernelllm.discover.resolve import Project
from pytest_kernelllm.judge.static_check.static_check import find_violations
from pytest_kernelllm.suggest.edit import EditError, set_kernel
from pytest_kernelllm.suggest.github.errors import Refused
from pytest_kernelllm.suggest.github.git import Change
from pytest_kernelllm.suggest.place import FOLDER

LARGEST_NEW = 2**20
"""Bytes of a new kernel module."""
KERNEL_FILES = f"{FOLDER}/*.py"
"""Where kernel modules lie, as a glob matched from the right."""

_PLAIN, _RUNNABLE, _NONE = "100644", "100755", "000000"


def check_changes(changes: Sequence[Change], sources: Path, kernel_files: str = KERNEL_FILES) -> None:
    """Let changes pass that ``suggest`` itself would have made, and no others.

    A kernel module is read by the judge's screen. An edited source file must be, byte for byte, what this
    version makes of the old one for the kernels that the patch brings.

    Args:
        changes: as git sees them.
        sources: folder with the project's Python files before the change; read, never run.
        kernel_files: glob for kernel modules, matched from the right.

    Raises:
        Refused: anything else; names the file and why.
    """
    for change in changes:
        check_path(change.path)
        _check_modes(change)
    kernels = [c for c in changes if _is_kernel(c.path, kernel_files)]
    packages = [c for c in changes if c.old is None and _is_package_of(c.path, kernels)]
    edits = [c for c in changes if c not in kernels and c not in packages]
    for change in packages:
        _check_package(change)
    named: set[str] = set()
    for change in edits:
        named |= _check_edit(change, kernels, sources)
    for change in kernels:
        _check_kernel(change, named)


def check_path(path: str) -> None:
    """Let the path of a Python file of the project pass; ``Refused`` for any other."""
    parts = path.split("/")
    bad = any(part in ("", "..") or part.startswith(".") or part != part.strip() for part in parts)
    if bad or not path.endswith(".py") or not path.isprintable() or set(path) & set('\\:*?"<>|~'):
        raise Refused(
            f"The patch touches {shown(path)}, and suggestions touch nothing but Python files of the project."
        )


def _check_modes(change: Change) -> None:
    if change.new is None or change.new_mode == _NONE:
        raise Refused(f"The patch takes {shown(change.path)} away or makes it something other than a file.")
    expected = (_PLAIN,) if change.old_mode == _NONE else (_PLAIN, _RUNNABLE)
    if change.new_mode not in expected or change.old_mode not in (_NONE, change.new_mode):
        raise Refused(
            f"The patch changes the mode of {shown(change.path)} from {change.old_mode} to {change.new_mode}."
        )


def _is_kernel(path: str, kernel_files: str) -> bool:
    place = PurePosixPath(path)
    return place.name != "__init__.py" and place.match(kernel_files)


def _is_package_of(path: str, kernels: Iterable[Change]) -> bool:
    place = PurePosixPath(path)
    return place.name == "__init__.py" and any(PurePosixPath(k.path).parent == place.parent for k in kernels)


def _check_package(change: Change) -> None:
    try:
        body = ast.parse(change.new or b"").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        body = [ast.Pass()]
    text = [node for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    if len(text) != len(body) or len(change.new or b"") > 1000:
        raise Refused(f"{shown(change.path)} of the patch holds more than a docstring.")


def _check_kernel(change: Change, named: set[str]) -> None:
    path, new = change.path, change.new or b""
    if change.old is None and path not in named:
        raise Refused(f"The patch adds {shown(path)}, which no marker names.")
    if change.old is not None and made_for(change.old) is None:
        raise Refused(f"The patch overwrites {shown(path)}, which is no generated kernel.")
    if len(new) > LARGEST_NEW:
        raise Refused(f"{shown(path)} of the patch has more than {LARGEST_NEW:,} bytes.")
    try:
        source = new.decode()
    except UnicodeDecodeError:
        raise Refused(f"{shown(path)} of the patch is not UTF-8.") from None
    # The bare carriage return ends a line for Python and none for a person who reads the diff.
    hidden = next((c for c in source if not c.isprintable() and c not in "\n\t"), None)
    if hidden is not None:
        raise Refused(f"{shown(path)} of the patch holds the invisible character U+{ord(hidden):04X}.")
    if made_for(new) is None or not unmodified(new):
        raise Refused(
            f"{shown(path)} of the patch is not a kernel module as it was generated: header or digest is wrong."
        )
    if findings := find_violations(source):
        raise Refused(f"{shown(path)} of the patch, line {findings[0].line}: it {shown(findings[0].reason)}.")


def _check_edit(change: Change, kernels: Sequence[Change], sources: Path) -> set[str]:
    """Let an edited file pass if only kernels of its markers differ; the paths of those kernels."""
    path = change.path
    if change.old is None:
        raise Refused(f"The patch adds {shown(path)}, which is no kernel module.")
    before, after = _marks(path, change.old, sources), _marks(path, change.new or b"", sources)
    expected, named = change.old, set()
    for name, mark in after.items():
        if mark.kernel is None or name not in before or before[name].kernel == mark.kernel:
            continue
        file = _file_of(mark.kernel, kernels)
        if file is None:
            raise Refused(
                f"{shown(path)} of the patch names the kernel {shown(mark.kernel)}, which the patch does not bring."
            )
        named.add(file)
        target = Target(path, name, before[name].line, "", before[name].kind, before[name].kernel)
        try:
            expected = set_kernel(expected, target, mark.kernel, sources)
        except EditError as error:
            raise Refused(shown(str(error))) from None
    if expected != change.new:
        raise Refused(
            f"The patch changes {shown(path)} in other places than its markers, or not as this version of "
            "pytest-kernelllm would (use one version for both jobs)."
        )
    return named


def _marks(path: str, content: bytes, sources: Path) -> dict[str, Mark]:
    project = Project(sources.absolute())
    try:
        found = find_marks(project, project.parse(project.root / path, content)).marks
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        raise Refused(f"{shown(path)} of the patch cannot be read as Python.") from None
    return {mark.name: mark for mark in found}


def _file_of(kernel: str, kernels: Sequence[Change]) -> str | None:
    """The file of the patch that a dotted name imports."""
    tail = kernel.replace(".", "/") + ".py"
    return next((k.path for k in kernels if f"/{k.path}".endswith(f"/{tail}")), None)


def shown(text: str) -> str:
    """A text that others wrote, on one line, without anything invisible, and not too long."""
    plain = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return plain if len(plain) <= 300 else plain[:299] + "…"
