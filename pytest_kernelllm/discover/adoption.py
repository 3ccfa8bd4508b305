"""Finds the file of an adopted kernel and checks whether it is still the one that was generated."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Literal

from kernelllm_judge.core.kernel_module import unmodified
from kernelllm_judge.core.targets import Target
from kernelllm_runtime.source.resolve import ProjectSources, package_root
from kernelllm_runtime.source.scan import earlier_hash, python_files

AdoptionState = Literal["current", "stale", "edited", "missing"]

HASH_LINE = "# source hash: "

HEADER = b"# Triton kernel for "
"""First bytes of a generated kernel module."""


def adopted_file(root: Path, target: Target) -> Path | None:
    """Returns the path of the kernel module that a target's ``kernel=`` names, or None if there is no such file."""
    if target.kernel is None:
        return None
    relative = Path(*target.kernel.split(".")).with_suffix(".py")
    return next((base / relative for base in _bases(root, target) if (base / relative).is_file()), None)


def _bases(root: Path, target: Target) -> list[Path]:
    """The folders from which a target's kernel may be imported; one that is a package itself is none."""
    folders = (package_root(root / target.path), root, root / "src")
    return [folder for folder in folders if not (folder / "__init__.py").is_file()]


def adoption_state(root: Path, target: Target) -> AdoptionState:
    """Compares an adopted kernel with its target: is it there, made for the present source, and unedited?

    Returns:
        ``missing`` if there is no file, ``stale`` if the source hash in its header is not the target's,
        ``edited`` if its content does not match its digest, else ``current``.
    """
    file = adopted_file(root, target)
    if file is None:
        return "missing"
    content = file.read_bytes()
    if not fits(ProjectSources(root), target, content):
        return "stale"
    return "current" if unmodified(content) else "edited"


def fits(project: ProjectSources, target: Target, content: bytes) -> bool:
    """Whether a kernel module was made for a target's present source."""
    stated = made_for(content)
    return stated is not None and (stated == target.source_hash or stated == earlier_hash(project, target))


def name_that_fits(project: ProjectSources, target: Target) -> str | None:
    """Returns the name of a kernel module that was made for a target whose ``kernel=`` names none; None if there is none.

    So it is after a package was renamed, or became one: the kernel is there, under another name.
    """
    kept = (target.kernel or "").rpartition(".")[2]
    files = sorted(python_files(project.root), key=lambda file: file.stem != kept)
    for file in files:
        content = file.read_bytes()
        if content.startswith(HEADER) and fits(project, target, content):
            for base in _bases(project.root, target):
                if file.is_relative_to(base):
                    return ".".join(file.relative_to(base).with_suffix("").parts)
    return None


def why_missing(project: ProjectSources, target: Target) -> str:
    """Says that there is no kernel module of the name in a target's marker, and what to do, after a semicolon."""
    fitting = name_that_fits(project, target)
    what = f"{target.name} names the kernel {target.kernel}, which does not exist"
    if fitting is None:
        return f"{what}; apply its patch again, or remove kernel= from the marker"
    return f"{what}; {fitting} was made for it, so run kernelllm-check --fix, which writes that name"


def verified_under(source: str) -> str:
    """Returns the number of the policy under which a kernel module was verified, from its header; empty if that says none."""
    header = "".join(itertools.takewhile(lambda line: line.startswith("#"), source.splitlines(keepends=True)))
    found = re.search(r"^# verified: .*\bpolicy (\d+)", header.replace("\n#   ", " "), re.MULTILINE)
    return found[1] if found else ""


def made_for(content: bytes) -> str | None:
    """Returns the source hash from a kernel module's header, or None if the header has none."""
    for line in content.decode(errors="replace").splitlines():
        if line.startswith(HASH_LINE):
            return line.removeprefix(HASH_LINE).strip()
        if not line.startswith("#"):
            break
    return None
