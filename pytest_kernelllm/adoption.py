"""Adopted kernels as they stand in the project: where the file is, and whether it was made for today's source."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pytest_kernelllm.discover.resolve import package_root
from pytest_kernelllm.records import Target

AdoptionState = Literal["current", "stale", "missing"]

HASH_LINE = "# source hash: "


def adopted_file(root: Path, target: Target) -> Path | None:
    """The kernel module that a target's ``kernel=`` names; None if it is not there."""
    if target.kernel is None:
        return None
    relative = Path(*target.kernel.split(".")).with_suffix(".py")
    for folder in (package_root(root / target.path), root, root / "src"):
        if (folder / relative).is_file():
            return folder / relative
    return None


def adoption_state(root: Path, target: Target) -> AdoptionState:
    """``current`` if the kernel was made for the target's present source, by the hash in its header."""
    file = adopted_file(root, target)
    if file is None:
        return "missing"
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(HASH_LINE):
                return "current" if line.removeprefix(HASH_LINE).strip() == target.source_hash else "stale"
            if not line.startswith("#"):
                break
    return "stale"
