"""From outcomes to patches: one for each target with a kernel worth having, and one for all of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pytest_kernelllm.adoption import adoption_state
from pytest_kernelllm.outcome import Outcome, best
from pytest_kernelllm.records import Candidate, Target
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.edit import EditError
from pytest_kernelllm.suggest.patch import PatchError, combined, suggestion, write_patches


def write_suggestions(store: Store, root: Path, outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Write the patches that adopt what was found.

    Args:
        store: its folder receives the patches; targets that cannot be edited are told in its ``problems``.
        root: project root.
        outcomes: of all candidates of all targets.

    Returns:
        Path of each target's patch, relative to the working directory where that is shorter, by ``Target.id``.
    """
    targets = list({o.target.id: o.target for o in outcomes}.values())
    paths: dict[str, str] = {}
    adoptions: list[tuple[Target, Candidate]] = []
    for target in targets:
        winner = best([o for o in outcomes if o.target.id == target.id])
        if winner is None or winner.candidate is None or adoption_state(root, target) == "current":
            continue
        try:
            change = suggestion(root, target, winner.candidate, targets)
        except (EditError, PatchError) as error:
            store.problems.append(str(error))
            continue
        if change is not None:
            [path] = write_patches(store, [change])
            paths[target.id] = os.path.relpath(path)
            adoptions.append((target, winner.candidate))
    if len(adoptions) > 1 and (everything := combined(root, adoptions, targets)) is not None:
        write_patches(store, [everything])
    return paths
