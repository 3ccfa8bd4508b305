"""Decides the path of an adopted kernel: ``_triton/<class>.py`` beside the target's file, or as ``kernels_dir`` says."""

from __future__ import annotations

import hashlib
import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernelllm_judge.core.records import Target
from kernelllm_judge.core.syntax import snake_case
from kernelllm_runtime.source.resolve import package_root
from pytest_kernelllm.suggest.files import PatchError

FOLDER = "_triton"

_RESERVED = re.compile(r"con|prn|aux|nul|com\d|lpt\d|sitecustomize|usercustomize|setup")
"""Devices of Windows, and modules that Python's start or a build looks for."""


@dataclass(frozen=True)
class KernelPlace:
    """The path of a kernel module in the project, and how it is imported."""

    path: str
    """POSIX path relative to the project root."""
    dotted: str
    """Dotted name, as ``import`` and ``kernel=`` take it."""
    package: str | None
    """The ``__init__.py`` that the import needs. None beside a file outside any package: there the folder must stay
    a namespace package, so that each such folder of the project can have its own."""


def place(root: Path, target: Target, targets: Iterable[Target] = (), folder: str = FOLDER) -> KernelPlace:
    """Returns the place of a target's kernel, whichever targets are handled first.

    An adopted target keeps its place, unless a hand-written file is there. Two targets with the same name get
    longer names: with the name of their file, and with digits of a hash if that is equal as well.

    Args:
        targets: the known targets of the project; kernel files of other targets on disk count as well.
        folder: for new kernels: a name, for a folder beside each target's file, or a path with ``/`` from the
            project root, for one common folder.

    Raises:
        PatchError: modules cannot be imported from such a folder.
    """
    if not all(part.isidentifier() for part in folder.split("/")):
        raise PatchError(f"Kernels cannot be imported from a folder {folder!r}; use letters, digits and _.")

    def at(name: str, home: PurePosixPath) -> KernelPlace:
        packages = (root / home).parent.relative_to(package_root(root / home)).parts
        package = str(home / "__init__.py") if packages else None
        return KernelPlace(str(home / f"{name}.py"), ".".join((*packages, home.name, name)), package)

    beside = PurePosixPath(target.path).parent
    home = PurePosixPath(folder) if "/" in folder else beside / folder
    if package_root(root / home) not in (package_root(root / target.path), root, root / "src"):
        raise PatchError(
            f"Kernels in {folder} cannot be imported by {target.path}; choose a folder of its package."
        )
    for known in (home, beside / FOLDER):
        kept = at((target.kernel or "").rpartition(".")[2], known)
        if kept.dotted == target.kernel and _may_write(root / kept.path):
            return kept

    others = [other for other in targets if other.id != target.id]
    if "/" not in folder:
        others = [other for other in others if _share(root, other, target)]
    digits = hashlib.sha256(target.id.encode()).hexdigest()[:6]
    for spell in (_short, _with_stem):
        name = spell(target)
        taken = any(spell(other) == name for other in others)
        if not taken and _may_write(root / at(name, home).path, target.id):
            return at(name, home)
    return at(f"{_with_stem(target)}_{digits}", home)


def _short(target: Target) -> str:
    return _module_name(snake_case(target.name))


def _with_stem(target: Target) -> str:
    return _module_name(f"{snake_case(PurePosixPath(target.path).stem)}_{snake_case(target.name)}")


def _module_name(name: str) -> str:
    """A name that can be imported, that neither pytest nor Python picks up by itself, and that Windows can hold."""
    if keyword.iskeyword(name) or _collected(name) or _RESERVED.fullmatch(name):
        return f"kernel_{name}_kernel"
    return name if name.isidentifier() else f"_{name}"


def _collected(name: str) -> bool:
    """Whether pytest would collect the file or import it as a conftest."""
    return name == "conftest" or name.startswith("test_") or name.endswith("_test")


def _share(root: Path, one: Target, other: Target) -> bool:
    """Whether two targets' kernels share a namespace: the same folder, or no package at all."""
    first, second = PurePosixPath(one.path).parent, PurePosixPath(other.path).parent
    return first == second or not any((root / folder / "__init__.py").is_file() for folder in (first, second))


_HEADER = "# Triton kernel for "


def target_in_header(content: bytes) -> str | None:
    """Returns the ``Target.id`` in the first line of a generated kernel module; None for any other file."""
    first = content.partition(b"\n")[0].decode(errors="replace")
    return first.removeprefix(_HEADER).strip() if first.startswith(_HEADER) else None


def _may_write(path: Path, owner: str | None = None) -> bool:
    """Whether the file does not exist, or is a generated kernel (of the target ``owner``, if given)."""
    try:
        found = target_in_header(path.read_bytes())
    except OSError:
        return True
    return found is not None and owner in (None, found)
