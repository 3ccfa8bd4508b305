"""Adopted kernels as they stand in the project: where the file is, and whether it is still the one that was made."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pytest_kernelllm.core.kernel_module import unmodified
from pytest_kernelllm.core.targets import Target
from pytest_kernelllm.discover.resolve import package_root

AdoptionState = Literal["current", "stale", "edited", "missing"]

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
    """``current`` if the kernel was made for the target's present source, by the hash in its header.

    Else ``stale``; ``edited`` if the hash is right and the file is not what was generated, by its digest.
    """
    file = adopted_file(root, target)
    if file is None:
        return "missing"
    content = file.read_bytes()
    if made_for(content) != target.source_hash:
        return "stale"
    return "current" if unmodified(content) else "edited"


def made_for(content: bytes) -> str | None:
    """The source hash in a kernel module's header; None if it has none."""
    for line in content.decode(errors="replace").splitlines():
        if line.startswith(HASH_LINE):
            return line.removeprefix(HASH_LINE).strip()
        if not line.startswith("#"):
            break
    return None
