"""Carries over what the version before knew: source hashes then depended on where files lie, and verdicts' names on the policy.

Renderings and measurements are made anew: no verdict depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelllm_judge.core.kernel_module import renamed
from kernelllm_judge.core.targets import Target
from kernelllm_judge.standing import standing
from kernelllm_runtime.source.resolve import ProjectSources
from kernelllm_runtime.source.scan import earlier_hash, scan
from pytest_kernelllm.store.folder import StoreFolder
from pytest_kernelllm.store.runs import RunFiles
from pytest_kernelllm.store.verdicts import VerdictFiles, VerdictKey, verdict_of


def upgrade(folder: StoreFolder, root: Path) -> None:
    """Gives what is known of the project's targets the names of today; the earlier entries stay until ``gc``."""
    verdicts, runs = VerdictFiles(folder), RunFiles(folder)
    hashes: dict[str, str] = {}
    for target, earlier in _targets(folder, root):
        hashes[earlier] = target.source_hash
        old, new = folder.target(earlier), folder.target(target.source_hash)
        for path in old.glob("completions/*/*.json"):
            kind = "exhausted" if path.stem == "exhausted" else "completion"
            body = folder.read(path, kind, _as_it_is)
            if body is not None:
                folder.write_entry(new / path.relative_to(old), kind, body)
        for path in old.glob("verdicts/*.json"):
            if record := folder.read(path, "verdict", verdict_of):
                source = renamed(record.candidate.source, target.id, target.source_hash)
                carried = replace(
                    record,
                    target=target.id,
                    source_hash=target.source_hash,
                    candidate=replace(record.candidate, source=source),
                )
                known = verdicts.get(VerdictKey.of(carried))
                if known is None or not standing(known.verdict).stands:
                    verdicts.add(carried)
    for run in runs:
        kernels = tuple(replace(k, source_hash=hashes.get(k.source_hash, k.source_hash)) for k in run.kernels)
        if kernels != run.kernels:
            runs.put(replace(run, kernels=kernels))


def _targets(folder: StoreFolder, root: Path) -> Iterator[tuple[Target, str]]:
    """Yields the project's targets that the store knows by their earlier hashes, with these."""
    project = ProjectSources(root.absolute())
    for target in scan([root], root, kernelbench=True).targets:
        earlier = earlier_hash(project, target)
        if earlier and folder.target(earlier).is_dir():
            yield target, earlier


def _as_it_is(body: Any) -> Any:
    return body
