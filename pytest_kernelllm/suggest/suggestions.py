"""Writes patches from outcomes: one for each target with a kernel worth adopting, and one for all of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernelllm_judge.core.records import Candidate, Target
from pytest_kernelllm.core.outcome import Outcome, best
from pytest_kernelllm.discover.adoption import adoption_state
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.edit import EditError
from pytest_kernelllm.suggest.figures import shipped, slower_than_compile
from pytest_kernelllm.suggest.files import PatchError
from pytest_kernelllm.suggest.patch import COMBINED, combined, patch_name, suggestion
from pytest_kernelllm.suggest.place import FOLDER, target_in_header
from pytest_kernelllm.suggest.style import Style


def write_suggestions(
    store: Store, root: Path, outcomes: Sequence[Outcome], folder: str = FOLDER, timed_only: bool = False
) -> dict[str, str]:
    """Writes the patches that adopt verified kernels, and removes those that are out of date.

    Args:
        store: its folder receives the patches, its ``problems`` the targets that cannot be edited.
        timed_only: whether kernels whose speed was not measured get no patch.

    Returns:
        The path of each target's patch, relative to the working directory, by ``Target.id``.
    """
    targets = list({o.target.id: o.target for o in outcomes}.values())
    style = Style(root)
    store.patches.remove(COMBINED)
    _remove_orphans(store, root)
    paths: dict[str, str] = {}
    adoptions: list[tuple[Target, Candidate]] = []
    warnings: list[str] = []
    for target in targets:
        if adoption_state(root, target) == "current":
            store.patches.remove(patch_name([target.id]))
            continue
        winner = best([o for o in outcomes if o.target.id == target.id])
        if winner is None or winner.candidate is None or winner.verdict is None:
            continue
        if timed_only and not winner.verdict.timing:
            store.patches.remove(patch_name([target.id]))
            continue
        candidate = shipped(winner.candidate, winner.verdict)
        try:
            change = suggestion(root, target, candidate, targets, folder, style)
        except (EditError, PatchError) as error:
            store.problems.append(str(error))
            continue
        if change is not None:
            warning = slower_than_compile(target.name, winner.verdict)
            warnings += [warning] if warning else []
            path = store.patches.write(
                change.name, replace(change, warnings=(warning,) if warning else ()).patch
            )
            if path is not None:
                paths[target.id] = os.path.relpath(path)
                adoptions.append((target, candidate))
    if len(adoptions) > 1:
        everything = combined(root, adoptions, targets, folder, style)
        if everything is not None:
            store.patches.write(COMBINED, replace(everything, warnings=tuple(warnings)).patch)
    store.problems.extend(style.notes)
    return paths


def _remove_orphans(store: Store, root: Path) -> None:
    """Removes the patches of files that are gone: no later run would."""
    for patch in store.patches.path.glob("*.patch"):
        with contextlib.suppress(OSError):  # one that cannot be read stays
            added = (line[1:] for line in patch.read_bytes().splitlines() if line.startswith(b"+"))
            targets = filter(None, map(target_in_header, added))
            if not all((root / target.partition("::")[0]).exists() for target in targets):
                store.patches.remove(patch.stem)
