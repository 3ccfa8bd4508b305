"""``kernelllm apply``: applies suggested patches to the working tree."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pytest_kernelllm.commands.common import OK, UNJUDGED, CommandError
from pytest_kernelllm.commands.project import ProjectContext, project_here
from pytest_kernelllm.commands.targets import NAMES, named_targets
from pytest_kernelllm.core.words import say
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.edit import EditError
from pytest_kernelllm.suggest.files import PatchError
from pytest_kernelllm.suggest.offers import Offer, adoption, known_targets, offers
from pytest_kernelllm.suggest.patch import COMBINED, apply, combined, patch_name, suggestion
from pytest_kernelllm.suggest.style import Style

HELP = "Apply suggested patches to the working tree."


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("names", nargs="*", help=f"patches: files, or targets as {NAMES} (default: all)")


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 0, or 2 if a patch could not be applied."""
    project = project_here()
    root, store = project.root, project.store
    try:
        found = offers(store, _paths(root, store, options.names))
    except PatchError as error:
        raise CommandError(str(error)) from None
    say(*store.problems)
    return _apply_all(project, found)


def _paths(root: Path, store: Store, names: Sequence[str]) -> list[Path]:
    folder = store.patches.path
    if not names:
        every = sorted(path for path in folder.glob("*.patch") if path.stem != COMBINED)
        if not every:
            raise CommandError(f"There are no patches in {folder}; run `pytest --kernelllm` first.")
        return every
    paths: list[Path] = []
    for name in names:
        patch = folder / f"{name.removesuffix('.patch')}.patch"
        if name and patch.is_file():
            paths.append(patch)
        elif Path(name).is_file() and not name.endswith(".py"):
            paths.append(Path(name))
        else:
            paths += _of_target(root, folder, name)
    return list(dict.fromkeys(paths))


def _of_target(root: Path, folder: Path, name: str) -> list[Path]:
    """Returns the patches of the targets that a name means."""
    file = Path(name.partition("::")[0])
    targets = scan([root, *([file.absolute()] if file.is_file() else [])], root).targets
    found = {
        target: folder / f"{patch_name([target.id])}.patch" for target in named_targets(name, targets, root)
    }
    if not any(patch.is_file() for patch in found.values()):
        raise CommandError(
            f"There is no patch for {', '.join(target.id for target in found)} in {folder}; "
            "run `pytest --kernelllm` first."
        )
    return [patch for patch in found.values() if patch.is_file()]


def _apply_all(project: ProjectContext, found: Sequence[Offer]) -> int:
    """Applies the patches with a known verdict as one change, and the others one by one as they are."""
    root, folder = project.root, project.kernels
    targets = known_targets(root, [offer.record for offer in found])
    adoptions, names, failed, style = [], [], False, Style(root)
    for offer in found:
        try:
            if offer.record is None:
                apply(root, offer.path)
                print(f"applied {offer.name}")
            elif (chosen := adoption(root, offer.record, targets)) is None:
                print(f"{offer.name} is adopted already")
            elif suggestion(root, *chosen, targets, folder, style) is not None:
                adoptions.append(chosen)
                names.append(offer.name)
        except (PatchError, EditError) as error:
            failed = True
            say(error)
    try:
        if change := combined(root, adoptions, targets, folder, style):
            apply(root, change)
    except PatchError as error:
        raise CommandError(str(error)) from None
    for name in names:
        print(f"applied {name}")
    for note in style.notes:
        say(note)
    return UNJUDGED if failed else OK
