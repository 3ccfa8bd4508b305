"""Patches in the store with the verdicts behind them, and the change each of them is for the files as they are now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_kernelllm.core.kernel_module import DIGEST_LINE
from pytest_kernelllm.core.records import Candidate, KernelRecord, Target
from pytest_kernelllm.discover.adoption import adoption_state
from pytest_kernelllm.discover.scan import scan, scan_file
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.figures import figures, shipped
from pytest_kernelllm.suggest.files import PatchError
from pytest_kernelllm.suggest.patch import COMBINED

_DIGEST = re.compile(f"^\\+{DIGEST_LINE}([0-9a-f]{{64}})$".encode(), re.MULTILINE)


@dataclass(frozen=True)
class Offer:
    """A patch file and, where the store still has it, the verdict that it comes from."""

    path: Path
    record: KernelRecord | None

    @property
    def name(self) -> str:
        """As the run's table shows it."""
        return self.path.stem


def offers(store: Store, paths: Iterable[Path]) -> list[Offer]:
    """The patches, in their order, each with its verdict.

    Raises:
        PatchError: a patch cannot be read.
    """
    records = [record for record in store.verdicts if record.verdict.accepted]
    return [Offer(path, None if path.stem == COMBINED else _record(path, records)) for path in paths]


def adoption(root: Path, record: KernelRecord, targets: Sequence[Target]) -> tuple[Target, Candidate] | None:
    """What adopts a verified kernel in the files as they are now; None if it is adopted already.

    Raises:
        PatchError: the target is gone, or not what the kernel was verified for.
    """
    target = next((target for target in targets if target.id == record.target), None)
    if target is None:
        raise PatchError(f"{record.target} is gone; run pytest --kernelllm for what is there now.")
    if target.source_hash != record.source_hash:
        raise PatchError(
            f"{target.id} changed since its kernel was verified; run pytest --kernelllm for a new one."
        )
    if adoption_state(root, target) == "current":
        return None
    return target, shipped(record.candidate, record.verdict)


def known_targets(root: Path, records: Iterable[KernelRecord | None]) -> list[Target]:
    """The project's targets, and those of files that a scan of the project leaves out."""
    found = {target.id: target for target in scan([root], root).targets}
    for path in {record.target.partition("::")[0] for record in records if record}:
        found |= {target.id: target for target in scan_file(root / path, root).targets}
    return list(found.values())


def _record(path: Path, records: Sequence[KernelRecord]) -> KernelRecord | None:
    """By the digest in the patch; of several machines' verdicts the one whose figures stand there."""
    try:
        patch = path.read_bytes()
    except OSError as error:
        raise PatchError(f"{path} cannot be read ({error.strerror}).") from None
    found = _DIGEST.search(patch)
    if found is None:
        return None
    line = f"{DIGEST_LINE}{found[1].decode()}\n"
    same = [record for record in records if line in record.candidate.source]

    def likeness(record: KernelRecord) -> tuple[bool, bool, str]:
        stands = all(f": {text}\n".encode() in patch for text in figures(record.verdict).values())
        return stands, bool(record.verdict.timing), record.created

    return max(same, key=likeness, default=None)
