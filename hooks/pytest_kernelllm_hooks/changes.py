"""Finds the targets that changed files concern: those in the files, and those whose adopted kernel is among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.core.targets import Target
from kernelllm_runtime.source.resolve import ProjectSources
from pytest_kernelllm.discover.adoption import adopted_file
from pytest_kernelllm.discover.scan import Problem, Scan, scan_file
from pytest_kernelllm_hooks.concerned import HEADER, content_of, like_kernel


@dataclass(frozen=True)
class Changes:
    """The targets, kernel modules and problems in a set of files."""

    targets: tuple[Target, ...]
    """Targets in the files, or with an adopted kernel among them."""
    strays: tuple[Path, ...]
    """Generated kernel modules whose target is not where their header says."""
    problems: tuple[Problem, ...]
    """Invalid markers, and files that cannot be read."""


def changes(files: Iterable[Path], project: ProjectSources) -> Changes:
    """Reads files and finds what they concern; nothing is imported.

    Args:
        files: absolute paths; missing files are skipped.
    """
    look = _Look(project)
    targets: dict[str, Target] = {}
    strays: list[Path] = []
    problems: list[Problem] = []
    for file in files:
        found = look.scan(file)
        targets |= {target.id: target for target in found.targets}
        problems += found.problems
        content = content_of(file)
        if like_kernel(content):
            named = look.in_header(content)
            adopters = look.adopting(file, named) or look.adopting(file, look.nearby(file))
            targets |= {target.id: target for target in adopters}
            if content.startswith(HEADER) and not named and not adopters:
                strays.append(file)
    return Changes(tuple(targets.values()), tuple(strays), tuple(problems))


class _Look:
    """Scans the project's files, each one once."""

    def __init__(self, project: ProjectSources) -> None:
        self.project = project
        self._scans: dict[Path, Scan] = {}

    def scan(self, file: Path) -> Scan:
        if file not in self._scans:
            self._scans[file] = scan_file(file, self.project.root, project=self.project)
        return self._scans[file]

    def in_header(self, content: bytes) -> list[Target]:
        """The target that a kernel module's header names, if it exists."""
        first = content.partition(b"\n")[0].removeprefix(HEADER).decode(errors="replace").strip()
        path, _, name = first.partition("::")
        if not path.endswith(".py") or not (file := self.project.root / path).is_file():
            return []
        return [target for target in self.scan(file).targets if target.name == name]

    def nearby(self, kernel: Path) -> Iterator[Target]:
        """Yields the targets beside a kernel module's folder, where suggestions put it."""
        folder = kernel.parent.parent
        if folder.is_relative_to(self.project.root):
            for file in sorted(folder.glob("*.py")):
                yield from self.scan(file).targets

    def adopting(self, kernel: Path, targets: Iterable[Target]) -> list[Target]:
        """The targets that have adopted this kernel module."""
        files = ((target, adopted_file(self.project.root, target)) for target in targets)
        return [target for target, file in files if file is not None and file.samefile(kernel)]
