"""Finds problems of markers and adopted kernels by reading source files."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from kernelllm_judge.core.kernel_module import DIGEST_LINE, unmodified
from kernelllm_judge.core.targets import Target
from kernelllm_runtime.source.resolve import ProjectSources, label
from kernelllm_runtime.source.scan import mark_of
from kernelllm_runtime.source.source_hash import unknown_packages
from pytest_kernelllm.core.words import command, from_here
from pytest_kernelllm.discover.adoption import adopted_file, fits, name_that_fits, why_missing
from pytest_kernelllm.discover.scan import Problem, scan_file
from pytest_kernelllm_hooks.changes import changes


class Doubt(Problem):
    """Something that cannot be checked here; it does not fail the hook."""


class Misnamed(Problem):
    """A marker whose ``kernel=`` names no file. ``fix`` writes the name of the kernel that fits, if there is one."""


def findings(files: Iterable[Path], root: Path) -> Iterator[Problem]:
    """Yields the problems in files, and of the adopted kernels that they concern.

    Args:
        root: the project root, absolute; the paths of problems are relative to it.
    """
    project = ProjectSources(root)
    found = changes(files, project)
    for problem in found.problems:
        yield (
            problem if ";" in problem.message else replace(problem, message=f"{problem.message}; correct it")
        )
    for stray in found.strays:
        yield from _edited(root, stray, "a generated kernel", "run pytest --kernelllm for a new one")
    for target in found.targets:
        if target.kernel is not None:
            yield from _adopted(project, target)


def fix(root: Path, problem: Misnamed) -> str | None:
    """Writes the name of the kernel that was made for a marker's class into the marker; returns it, or None if there is none.

    Raises:
        EditError: the marker cannot be edited safely.
    """
    from pytest_kernelllm.suggest.edit import set_kernel

    file, project = root / problem.path, ProjectSources(root)
    target = next(t for t in scan_file(file, root, project=project).targets if t.line == problem.line)
    kernel = name_that_fits(project, target)
    if kernel is not None:
        file.write_bytes(set_kernel(file.read_bytes(), target, kernel, root))
    return kernel


def _adopted(project: ProjectSources, target: Target) -> Iterator[Problem]:
    """Checks that the kernel is present, unedited, and made for the current source."""
    file = adopted_file(project.root, target)
    again = command("pytest", "--kernelllm-only", from_here(project.root, target.path))
    again = f"run {again} for a new one"
    if file is None:
        yield Misnamed(target.path, target.line, why_missing(project, target))
        return
    yield from _edited(project.root, file, f"the kernel of {target.id}", again)
    if fits(project, target, file.read_bytes()):
        return
    # Where torch is installed this is the project's own environment, and the project lacks them as well.
    marked = None if importlib.util.find_spec("torch") else mark_of(project, target)
    if missing := sorted(unknown_packages(project, *marked)) if marked else []:
        what = f"cannot tell whether {target.kernel} is stale: {', '.join(missing)} not installed here"
        advice = "name it in the hook's additional_dependencies, or set language: system"
        yield Doubt(target.path, target.line, f"{what}; {advice}")
    else:
        what = f"{target.kernel} is stale: it was not made for the current source of {target.name}"
        yield Problem(target.path, target.line, f"{what}; {again}")


def _edited(root: Path, kernel: Path, what: str, advice: str) -> Iterator[Problem]:
    content = kernel.read_bytes()
    if unmodified(content):
        return
    lines = content.decode(errors="replace").splitlines()
    number = next((n for n, line in enumerate(lines, 1) if line.startswith(DIGEST_LINE)), 0)
    if number:
        text = f"{what} was edited after it was generated; restore it, or {advice}"
    else:
        text = f"{what} has no digest, so an edit would not show; {advice}"
    yield Problem(label(kernel, root), number or 1, text)
