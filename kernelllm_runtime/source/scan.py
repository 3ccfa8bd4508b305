"""Finds targets in source files, without importing them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelllm_runtime.source.marks import MARKER, Mark, find_marks, kernelbench_mark
from kernelllm_runtime.source.resolve import Module, ProjectSources, label
from kernelllm_runtime.source.source_hash import EARLIER, source_hash
from kernelllm_runtime.source.training import why_trained
from kernelllm_runtime.targets import Target

_SKIPPED = frozenset(("__pycache__", "node_modules", "site-packages", "build", "dist"))


@dataclass(frozen=True)
class Problem:
    """A marker that makes no target, or a file that cannot be read; ``str()`` gives a line for users."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        """Returns ``path:line: message.``"""
        return f"{self.path}:{self.line}: {self.message}."


@dataclass(frozen=True)
class Scan:
    """The targets and problems that a scan found, in the order of the paths, with files sorted within a folder."""

    targets: tuple[Target, ...] = ()
    problems: tuple[Problem, ...] = ()


def scan(paths: Iterable[Path], root: Path, *, kernelbench: bool = False) -> Scan:
    """Finds the targets in files and folders.

    Hidden folders, virtual environments, caches and build output are skipped.

    Args:
        paths: files and folders; a folder that is given here is searched whatever its name is.
        kernelbench: also take files in KernelBench's form (``Model``, ``get_inputs``, ``get_init_inputs``).
    """
    root = root.absolute()
    project = ProjectSources(root)
    files = dict.fromkeys(file for path in paths for file in python_files(path.absolute()))
    found = [_scan_file(file, project, kernelbench) for file in files]
    return Scan(
        tuple(target for part in found for target in part.targets),
        tuple(problem for part in found for problem in part.problems),
    )


def scan_file(
    path: Path, root: Path, *, kernelbench: bool = False, project: ProjectSources | None = None
) -> Scan:
    """Finds the targets in one file; the arguments are those of ``scan``.

    Pass a ``project`` for the same root so that files which several targets reach are parsed only once.
    """
    return _scan_file(path.absolute(), project or ProjectSources(root.absolute()), kernelbench)


def mark_of(project: ProjectSources, target: Target) -> tuple[Module, Mark] | None:
    """Returns a target's file and marker; None if there is none, or the file cannot be read."""
    try:
        module = project.parse(project.root / target.path)
        marks = [*find_marks(project, module).marks, kernelbench_mark(module)]
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return next(((module, mark) for mark in marks if mark is not None and mark.name == target.name), None)


def earlier_hash(project: ProjectSources, target: Target) -> str:
    """Returns the hash that the version before gives a target's source; empty where the target is not found."""
    found = mark_of(project, target)
    return source_hash(project, *found, version=EARLIER) if found else ""


def python_files(path: Path) -> Iterator[Path]:
    """Yields ``path`` itself if it is a Python file, else the Python files below it, sorted."""
    if path.suffix == ".py" and path.is_file():
        yield path
    elif path.is_dir():
        yield from map(Path, _walk(str(path)))


def _walk(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return  # no permission to read it
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _SKIPPED and not Path(entry.path, "pyvenv.cfg").exists():
                yield from _walk(entry.path)
        elif entry.name.endswith(".py"):
            yield entry.path


def _scan_file(path: Path, project: ProjectSources, kernelbench: bool) -> Scan:
    try:
        source = path.read_bytes()
    except OSError:
        return Scan()  # a broken link, or no permission to read it
    bench = kernelbench and b"get_init_inputs" in source
    if not bench and MARKER.encode() not in source:
        return Scan()
    where = label(path, project.root)
    try:
        module = project.parse(path, source)
        found = find_marks(project, module)
        marks = list(found.marks)
        if bench and (model := kernelbench_mark(module)) and all(mark.name != model.name for mark in marks):
            marks.append(model)
        targets = tuple(
            Target(
                path=where,
                name=mark.name,
                line=mark.line,
                source_hash=source_hash(project, module, mark),
                kind=mark.kind,
                kernel=mark.kernel,
                trained=why_trained(module, mark),
            )
            for mark in marks
        )
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        return Scan((), (Problem(where, line, f"cannot be read as Python ({getattr(error, 'msg', error)})"),))
    return Scan(targets, tuple(Problem(where, line, message) for line, message in found.problems))
