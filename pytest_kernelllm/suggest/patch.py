"""Suggestions: the files that adopt a kernel, the patch that says so, and its application."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_kernelllm.records import Candidate, Target
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.entry import write_atomic
from pytest_kernelllm.suggest.edit import set_kernel
from pytest_kernelllm.suggest.gitdiff import Change, git_patch
from pytest_kernelllm.suggest.place import place

COMBINED = "all"
"""Name of the patch that adopts everything at once."""

_PACKAGE = b'"""Triton kernels, each verified against the module that it replaces."""\n'


class PatchError(RuntimeError):
    """A patch cannot be applied; one sentence that says why and what to do. Nothing was changed."""


@dataclass(frozen=True)
class Suggestion:
    """Changes that adopt the kernels of one target, or of several."""

    targets: tuple[str, ...]
    """``Target.id`` of each."""
    files: Mapping[str, Change]
    """Bytes before (None: a new file) and after, by POSIX path relative to the project root."""
    prefix: str = ""
    """From the top of the git work tree to the project root: ``""`` or ``"sub/folder/"``."""

    @property
    def name(self) -> str:
        """Name of the patch file, without its ending."""
        if len(self.targets) > 1:
            return COMBINED
        path, _, name = self.targets[0].partition("::")
        return ".".join((*Path(path).with_suffix("").parts, name))

    @property
    def patch(self) -> bytes:
        """What ``git apply`` takes, from anywhere in the work tree; bytes, in each file's own encoding."""
        return git_patch(self.files, self.prefix)


def suggestion(
    root: Path, target: Target, candidate: Candidate, targets: Iterable[Target] = ()
) -> Suggestion | None:
    """The change that adopts a candidate for a target; None if it is adopted already, byte for byte.

    Args:
        root: the project root.
        target: as scanned; its file may have changed since, elsewhere than in the marker.
        candidate: whose source becomes the kernel module.
        targets: all targets of the project, so that two kernels never want one file.

    Raises:
        EditError: the marker cannot be changed without guessing.
        PatchError: a file cannot be read.
    """
    return combined(root, [(target, candidate)], targets)


def combined(
    root: Path, adoptions: Sequence[tuple[Target, Candidate]], targets: Iterable[Target] = ()
) -> Suggestion | None:
    """One change that adopts several kernels; arguments and errors are those of ``suggestion``."""
    known = {target.id: target for target in (*targets, *(target for target, _ in adoptions))}
    before: dict[str, bytes | None] = {}
    after: dict[str, bytes] = {}

    def change(path: str, content: bytes) -> None:
        before.setdefault(path, _content(root / path))
        after[path] = content

    for target, candidate in adoptions:
        spot = place(root, target, known.values())
        source = after.get(target.path, _content(root / target.path))
        if source is None:
            raise PatchError(
                f"{target.path}: the file of {target.name} is gone; run pytest --kernelllm again."
            )
        change(target.path, set_kernel(source, target, spot.dotted, root))
        change(spot.path, candidate.source.encode())
        if spot.package and not (root / spot.package).exists():
            change(spot.package, _PACKAGE)
    files = {path: (before[path], content) for path, content in after.items() if before[path] != content}
    top = work_tree(root)
    below = root.absolute().relative_to(top).as_posix() if top else "."
    prefix = "" if below == "." else f"{below}/"
    return Suggestion(tuple(target.id for target, _ in adoptions), files, prefix) if files else None


def write_patches(store: Store, suggestions: Sequence[Suggestion]) -> list[Path]:
    """Write each as ``patches/<name>.patch`` in the store's folder; where they lie, in the same order."""
    return [store.write_patch(each.name, each.patch) for each in suggestions]


def apply(root: Path, what: Suggestion | Path) -> None:
    """Apply a suggestion, or a patch file that ``write_patches`` wrote: all of it or nothing.

    Inside a git work tree, and for patch files, ``git apply`` does it; else the files are written.

    Raises:
        PatchError: a file is no longer what the change was made for, or git is needed and missing.
    """
    top = work_tree(root)
    if isinstance(what, Suggestion):
        for path, (old, _) in what.files.items():
            if _content(root / path) != old:
                raise PatchError(
                    f"{path} changed since the patch was made; run pytest --kernelllm for a new one."
                )
        if top is None or shutil.which("git") is None:
            _write(root, what.files)
        else:
            _git_apply(top, what.patch, what.name)
        return
    try:
        patch = what.read_bytes()
    except OSError as error:
        raise PatchError(
            f"{what} cannot be read ({error.strerror}); name a file in .kernelllm/patches."
        ) from None
    if shutil.which("git") is None:
        raise PatchError(f"{what} needs git to be applied; install git, or run `patch -p1 < {what}`.")
    _git_apply(top or root, patch, str(what))


def work_tree(root: Path) -> Path | None:
    """Top of the git work tree that ``root`` lies in."""
    folder = root.absolute()
    return next((f for f in (folder, *folder.parents) if (f / ".git").exists()), None)


def _git_apply(top: Path, patch: bytes, name: str) -> None:
    # In a git hook these name the hook's repository and index, which need not be those of the patch.
    variables = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
    environment = {k: v for k, v in os.environ.items() if k not in variables}
    # An outer repository must not swallow a patch for files that it does not hold.
    environment["GIT_CEILING_DIRECTORIES"] = str(top.parent)
    # A carriage return is part of the file here, and no blank to complain about.
    command = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-"]
    done = subprocess.run(command, cwd=top, env=environment, input=patch, capture_output=True, check=False)
    if done.returncode:
        first = done.stderr.decode(errors="replace").strip().partition("\n")[0].removeprefix("error: ")
        raise PatchError(f"{name} does not apply ({first}); run pytest --kernelllm for a new one.")


def _write(root: Path, files: Mapping[str, Change]) -> None:
    for path, (old, new) in files.items():
        file = (root / path).resolve()  # what a link points to, not the link
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, new, mode=None if old is None else file.stat().st_mode & 0o7777)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PatchError(f"{path} cannot be read ({error.strerror}); fix that and run again.") from None
