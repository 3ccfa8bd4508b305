"""What a patch may change: exactly the files that this version changes to adopt the kernels that the patch adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernelllm_judge.core.records import Candidate, Target
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.suggest.edit import EditError
from pytest_kernelllm.suggest.files import FileChange, PatchError
from pytest_kernelllm.suggest.github.errors import SuggestionRefused, shown
from pytest_kernelllm.suggest.github.git import Change
from pytest_kernelllm.suggest.github.kernels import ProposedKernel, read_kernel
from pytest_kernelllm.suggest.github.layout import only_laid_out
from pytest_kernelllm.suggest.patch import combined
from pytest_kernelllm.suggest.place import FOLDER

_PLAIN, _EXECUTABLE, _NONE = "100644", "100755", "000000"


def check_changes(
    changes: Sequence[Change], sources: Path, verified: Sequence[Target] = (), kernels_dir: str = FOLDER
) -> Sequence[str]:
    """Accept changes that ``suggest`` itself makes for the kernels they contain, and no others.

    Every kernel module is read by the judge's static check. Then its adoption is made anew from ``sources``, and the
    result must be the same files with the same bytes, but for the layout of the marker, which a formatter may have
    written: so a kernel lies at the one path that the project derives for its target, and nothing differs in a source
    file but the marker.

    Args:
        changes: the difference between two trees, as git reports it.
        sources: folder with the repository's Python files before the change; they are read, never run.
        verified: the targets of the run, by which two targets that want one name get longer ones.

    Returns:
        ``Target.id`` of each target whose kernel is adopted.

    Raises:
        SuggestionRefused: anything else, or there is no kernel; names the file and the reason.
    """
    for change in changes:
        check_path(change.path)
        _check_modes(change)
    kernels = [kernel for change in changes if (kernel := read_kernel(change)) is not None]
    if not kernels:
        raise SuggestionRefused("The patch contains no kernel module.")
    found = {change.path: change.new or b"" for change in changes}
    refused: SuggestionRefused | None = None
    for root in _possible_roots(kernels, sources):
        try:
            adopted = _adopted(root, sources, kernels, verified, kernels_dir)
            _compare(found, adopted)
        except SuggestionRefused as error:
            refused = refused or error
        else:
            return [target.id for target in adopted.targets]
    raise refused or SuggestionRefused(
        f"{shown(kernels[0].path)} of the patch is for a target that the branch does not have."
    )


def check_path(path: str) -> None:
    """Accept the path of a Python file of the project; ``SuggestionRefused`` for any other."""
    parts = path.split("/")
    bad = any(part in ("", "..") or part.startswith(".") or part != part.strip() for part in parts)
    if bad or not path.endswith(".py") or not path.isprintable() or set(path) & set('\\:*?"<>|~'):
        raise SuggestionRefused(
            f"The patch changes {shown(path)}; a suggestion changes only Python files of the project."
        )


def _check_modes(change: Change) -> None:
    if change.new is None or change.new_mode == _NONE:
        raise SuggestionRefused(
            f"The patch deletes {shown(change.path)} or makes it something other than a file."
        )
    expected = (_PLAIN,) if change.old_mode == _NONE else (_PLAIN, _EXECUTABLE)
    if change.new_mode not in expected or change.old_mode not in (_NONE, change.new_mode):
        raise SuggestionRefused(
            f"The patch changes the mode of {shown(change.path)} from {change.old_mode} to {change.new_mode}."
        )


# ------------------------------------------------------------------ what the patch should be


def _possible_roots(kernels: Sequence[ProposedKernel], sources: Path) -> Iterator[Path]:
    """Folders above the kernels in which their targets' files exist: one of them is the project root."""
    for parent in PurePosixPath(kernels[0].path).parents:
        root = sources / parent
        if any(_is_inside(root, kernel.target.partition("::")[0], sources) for kernel in kernels):
            yield root


def _is_inside(root: Path, path: str, sources: Path) -> bool:
    try:
        file = (root / path).resolve()
        return file.is_relative_to(sources.resolve()) and file.is_file()
    except (OSError, ValueError):
        return False


def _adopted(
    root: Path, sources: Path, kernels: Sequence[ProposedKernel], verified: Sequence[Target], kernels_dir: str
) -> _Adopted:
    """Adopts the kernels."""
    paths = {target.path for target in verified} | {kernel.target.partition("::")[0] for kernel in kernels}
    present = sorted(path for path in paths if _is_inside(root, path, sources))
    targets = {target.id: target for path in present for target in scan_file(root / path, root).targets}
    known = {target.id for target in verified}
    others = [target for target in targets.values() if target.id in known]
    adoptions: list[tuple[Target, Candidate]] = []
    for kernel in kernels:
        if kernel.target not in targets:
            raise SuggestionRefused(
                f"{shown(kernel.path)} of the patch is for {shown(kernel.target)}, which has no marker."
            )
        adoptions.append((targets[kernel.target], Candidate(kernel.target, kernel.source, "")))
    try:
        change = combined(root, adoptions, others, kernels_dir)
    except (EditError, PatchError) as error:
        raise SuggestionRefused(shown(str(error))) from None
    prefix = PurePosixPath(root.relative_to(sources))
    return _Adopted(root, prefix, change.files if change else {}, [t for t, _ in adoptions])


@dataclass(frozen=True)
class _Adopted:
    """What adopting the kernels changes."""

    root: Path
    """The project root."""
    prefix: PurePosixPath
    """From the top of the repository to the project root."""
    files: Mapping[str, FileChange]
    """By path from the project root."""
    targets: Sequence[Target]

    def accepts(self, path: str, new: bytes) -> bool:
        """Whether a file is as it should be, but for the layout of its markers."""
        before, after = self.files[path]
        if new == after or before is None or after is None:
            return new == after
        here = [target for target in self.targets if target.path == path]
        return only_laid_out(before, after, new, here, self.root)


def _compare(found: Mapping[str, bytes], adopted: _Adopted) -> None:
    """Compares the patch with what it should be."""
    expected = {(adopted.prefix / path).as_posix(): path for path in adopted.files}
    for path in sorted(found.keys() - expected.keys()):
        raise SuggestionRefused(f"The patch changes {shown(path)}, which adopting its kernels does not need.")
    for path in sorted(expected.keys() - found.keys()):
        raise SuggestionRefused(
            f"The patch leaves {shown(path)} as it is, which adopting its kernels changes."
        )
    for path in sorted(found):
        if not adopted.accepts(expected[path], found[path]):
            raise SuggestionRefused(
                f"The patch changes {shown(path)} in another way than this version of pytest-kernelllm does "
                "(use one version for both jobs)."
            )
