"""Finds the file of an adopted kernel and checks whether it is still the one that was generated."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from kernelllm_judge.core.kernel_module import unmodified
from kernelllm_judge.core.targets import Target
from kernelllm_runtime.source.resolve import package_root

AdoptionState = Literal["current", "stale", "edited", "missing"]

HASH_LINE = "# source hash: "


def adopted_file(root: Path, target: Target) -> Path | None:
    """Returns the path of the kernel module that a target's ``kernel=`` names, or None if there is no such file."""
    if target.kernel is None:
        return None
    relative = Path(*target.kernel.split(".")).with_suffix(".py")
    for folder in (package_root(root / target.path), root, root / "src"):
        if (folder / relative).is_file():
            return folder / relative
    return None


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
    if made_for(content) != target.source_hash:
        return "stale"
    return "current" if unmodified(content) else "edited"


def made_for(content: bytes) -> str | None:
    """Returns the source hash from a kernel module's header, or None if the header has none."""
    for line in content.decode(errors="replace").splitlines():
        if line.startswith(HASH_LINE):
            return line.removeprefix(HASH_LINE).strip()
        if not line.startswith("#"):
            break
    return None
