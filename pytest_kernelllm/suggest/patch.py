"""Suggestions: the file changes that adopt a kernel, their patch, and its application."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.core.kernel_module import digest, unmodified
from kernelllm_judge.core.program import UNREADABLE
from kernelllm_judge.core.records import Candidate, Target
from kernelllm_runtime.source.resolve import label
from pytest_kernelllm.core.git import work_tree
from pytest_kernelllm.core.words import command
from pytest_kernelllm.discover.adoption import adopted_file, adoption_state
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.suggest.edit import set_kernel
from pytest_kernelllm.suggest.files import PatchError, change_files, content
from pytest_kernelllm.suggest.gitdiff import Change, git_patch
from pytest_kernelllm.suggest.place import FOLDER, place, target_in_header
from pytest_kernelllm.suggest.style import Style

COMBINED = "all"
"""Name of the patch that adopts everything at once."""

PACKAGE = b'"""Triton kernels, each verified against the module that it replaces."""\n'


@dataclass(frozen=True)
class Suggestion:
    """The changes that adopt the kernels of one or several targets."""

    targets: tuple[str, ...]
    """``Target.id`` of each."""
    files: Mapping[str, Change]
    """Bytes before (None for a new file) and after, by POSIX path relative to the project root."""
    prefix: str = ""
    """Path from the top of the git work tree to the project root: ``""`` or ``"sub/folder/"``."""
    warnings: tuple[str, ...] = ()
    """Lines that the patch begins with, for its reader; ``git apply`` skips them."""

    @property
    def name(self) -> str:
        """Name of the patch file, without its ending."""
        return patch_name(self.targets)

    @property
    def patch(self) -> bytes:
        """The patch for ``git apply`` at the top of the work tree; bytes, in each file's own encoding."""
        lines = "".join(f"{line}\n" for line in self.warnings)
        return lines.encode() + git_patch(self.files, self.prefix)


def patch_name(targets: Sequence[str]) -> str:
    """Returns the name of the patch for these targets (``Target.id``), without the suffix ``.patch``."""
    if len(targets) > 1:
        return COMBINED
    path, _, name = targets[0].partition("::")
    return ".".join((*Path(path).with_suffix("").parts, name))


def suggestion(
    root: Path,
    target: Target,
    candidate: Candidate,
    targets: Iterable[Target] = (),
    folder: str = FOLDER,
    style: Style | None = None,
) -> Suggestion | None:
    """Returns the change that adopts a candidate for a target; None if it is adopted already, whatever its figures.

    Args:
        target: as scanned; its file may have changed since, except for the marker.
        targets: all targets of the project, so that no two kernels get the same file.
        folder: where new kernel modules go, see ``place``.
        style: formats what changes; without one kernel modules keep their layout, and edits are as short as can be.

    Raises:
        EditError: the marker cannot be edited safely.
        PatchError: a file cannot be read, or is reached through a link.
    """
    return combined(root, [(target, candidate)], targets, folder, style)


def combined(
    root: Path,
    adoptions: Sequence[tuple[Target, Candidate]],
    targets: Iterable[Target] = (),
    folder: str = FOLDER,
    style: Style | None = None,
) -> Suggestion | None:
    """Returns one change that adopts several kernels; arguments and errors are those of ``suggestion``."""
    known = {target.id: target for target in (*targets, *(target for target, _ in adoptions))}
    before: dict[str, bytes | None] = {}
    after: dict[str, bytes] = {}

    def change(path: str, new: bytes) -> None:
        _refuse_links(root, path)
        before.setdefault(path, content(root / path))
        after[path] = new

    for target, candidate in adoptions:
        spot = place(root, target, known.values(), folder)
        source = after.get(target.path, content(root / target.path))
        if source is None:
            raise PatchError(
                f"{target.path}: the file of {target.name} is gone; run pytest --kernelllm again."
            )
        edited = set_kernel(source, target, spot.dotted, root)
        change(target.path, style.edited(target.path, source, edited) if style else edited)
        if not _holds(content(root / spot.path), candidate):
            kernel = candidate.source
            if style:
                kernel = style.kernel(spot.path, kernel, in_package=spot.package is not None)
            change(spot.path, kernel.encode())
        if spot.package and not (root / spot.package).exists():
            change(spot.package, PACKAGE)
    files = {path: (before[path], new) for path, new in after.items() if before[path] != new}
    top = work_tree(root.resolve())
    below = root.resolve().relative_to(top).as_posix() if top else "."
    prefix = "" if below == "." else f"{below}/"
    return Suggestion(tuple(target.id for target, _ in adoptions), files, prefix) if files else None


def _holds(kernel: bytes | None, candidate: Candidate) -> bool:
    """Whether a file is this kernel, whatever its layout and its figures."""
    if kernel is None or not unmodified(kernel):
        return False
    try:
        return digest(kernel) == digest(candidate.source)
    except UNREADABLE:
        return False


def _refuse_links(root: Path, path: str) -> None:
    real = (root / path).resolve()
    if not real.is_relative_to(root.resolve()):
        raise PatchError(f"{path} lies outside the project ({real}); run pytest --kernelllm there.")
    if (inside := real.relative_to(root.resolve()).as_posix()) != path:
        raise PatchError(
            f"{path} is a link to {inside}, which git does not patch; run {command('pytest', '--kernelllm', inside)}."
        )


def apply(root: Path, what: Suggestion | Path) -> None:
    """Applies a suggestion, or (with git) a patch file: all of it or nothing.

    Afterwards every kernel that changed is adopted, and was made for the source that stands there.

    Raises:
        PatchError: a file changed since the suggestion was made, git is needed and missing, or that would not be so.
    """
    if isinstance(what, Suggestion):
        name = what.name
        for path, (old, _) in what.files.items():
            if content(root / path) != old:
                raise PatchError(
                    f"{path} changed since the patch was made; run pytest --kernelllm for a new one."
                )
        before = {path: old for path, (old, _) in what.files.items()}
        change_files(root, what.files)
    else:
        name = what.stem
        before = _apply_file(root, what)
    if problem := _unsettled(root, before):
        change_files(root, {path: (content(root / path), old) for path, old in before.items()})
        raise PatchError(f"{name} is not applied: {problem}; run pytest --kernelllm for a new one.")


def _unsettled(root: Path, before: Mapping[str, bytes | None]) -> str | None:
    """Says which kernel is not what a patch was to make it, after the files changed; None if all are."""
    files = [root / path for path in before if path.endswith(".py") and (root / path).is_file()]
    targets = {target.id: target for target in scan([root, *files], root).targets}
    used = {target.id: adopted_file(root, target) for target in targets.values()}
    for file in files:
        by = [target for target in targets.values() if used[target.id] == file]
        if (made := target_in_header(file.read_bytes())) is not None and not by:
            gone = "" if made in targets else f", and {made} is gone"
            return f"no marker names the kernel in {label(file, root)}{gone}"
        for target in by:
            if (state := adoption_state(root, target)) != "current":
                return f"its kernel {_STATES[state]} {target.id}"
    marked = [target for target in targets.values() if target.kernel and root / target.path in files]
    lost = [target for target in marked if used[target.id] is None]
    return f"{lost[0].id} would name a kernel that is not there" if lost else None


_STATES = {"stale": "was made for another source of", "edited": "would not be the one that was verified for"}


def _apply_file(root: Path, patch: Path) -> dict[str, bytes | None]:
    """Applies a patch file with git; returns the files that it changes as they were, by paths relative to ``root``."""
    try:
        text = patch.read_bytes()
    except OSError as error:
        raise PatchError(
            f"{patch} cannot be read ({error.strerror}); name a file in .kernelllm/patches."
        ) from None
    if shutil.which("git") is None:
        raise PatchError(
            f"{patch} needs git to be applied; install git, or run `patch -p1 < {shlex.quote(str(patch))}`."
        )
    top = work_tree(root.resolve()) or root.resolve()
    counts = _git_apply(top, text, str(patch), "--numstat", "-z")
    paths = [
        top / os.fsdecode(line.split(b"\t", 2)[2]) for line in counts.split(b"\0") if line.count(b"\t") == 2
    ]
    before = {label(path, root.resolve()): content(path) for path in paths}
    _git_apply(top, text, str(patch))
    return before


def _git_apply(top: Path, patch: bytes, name: str, *options: str) -> bytes:
    # In a git hook these name the hook's repository and index, which may not be those of the patch.
    variables = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
    environment = {k: v for k, v in os.environ.items() if k not in variables}
    # An outer repository must not accept a patch for files that it does not contain.
    environment["GIT_CEILING_DIRECTORIES"] = str(top.parent)
    # A carriage return is part of the file here, not whitespace to warn about.
    command = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", *options, "-"]
    done = subprocess.run(command, cwd=top, env=environment, input=patch, capture_output=True, check=False)
    if done.returncode:
        first = done.stderr.decode(errors="replace").strip().partition("\n")[0].removeprefix("error: ")
        raise PatchError(f"{name} does not apply ({first}); run pytest --kernelllm for a new one.")
    return done.stdout
