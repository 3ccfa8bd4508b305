"""Reads the store's patches with the verdicts behind them, and finds what each would change today."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelllm_judge.core.kernel_module import DIGEST_LINE, PROVENANCE, digest, renamed
from kernelllm_judge.core.program import UNREADABLE
from kernelllm_judge.core.records import Candidate, KernelRecord, Target
from pytest_kernelllm.discover.adoption import HASH_LINE, adoption_state
from pytest_kernelllm.discover.scan import scan, scan_file
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.figures import figures, shipped
from pytest_kernelllm.suggest.files import PatchError
from pytest_kernelllm.suggest.patch import COMBINED

# A patch of a kernel module that is there shows these lines only where they change, or near what does.
_DIGEST = re.compile(f"^[+ ]{DIGEST_LINE}([0-9a-f]{{64}})$".encode(), re.MULTILINE)
_TARGET = re.compile(f"^[+ ]{re.escape(PROVENANCE[0])}(.+)$".encode(), re.MULTILINE)
_SOURCE = re.compile(f"^[+ ]{re.escape(HASH_LINE)}(.+)$".encode(), re.MULTILINE)


@dataclass(frozen=True)
class Offer:
    """A patch file, and the verdict it is based on if the store still has it."""

    path: Path
    record: KernelRecord | None

    @property
    def name(self) -> str:
        """The name that the run's table shows."""
        return self.path.stem


def offers(store: Store, paths: Iterable[Path]) -> list[Offer]:
    """Returns the patches in the given order, each with its verdict.

    Raises:
        PatchError: a patch cannot be read.
    """
    records = [record for record in store.verdicts if record.verdict.accepted]
    return [Offer(path, None if path.stem == COMBINED else _record(path, records)) for path in paths]


def adoption(root: Path, record: KernelRecord, targets: Sequence[Target]) -> tuple[Target, Candidate] | None:
    """Returns what adopts a verified kernel in the files as they are now; None if it is adopted already.

    Raises:
        PatchError: the target is gone, or has changed since the kernel was verified.
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
    """Returns the project's targets, including those of recorded files that a scan of the project skips."""
    found = {target.id: target for target in scan([root], root).targets}
    for path in {record.target.partition("::")[0] for record in records if record}:
        found |= {target.id: target for target in scan_file(root / path, root).targets}
    return list(found.values())


def _record(path: Path, records: Sequence[KernelRecord]) -> KernelRecord | None:
    """Finds the record by the digest in the patch; of several machines' records, the one with the patch's figures."""
    try:
        patch = path.read_bytes()
    except OSError as error:
        raise PatchError(f"{path} cannot be read ({error.strerror}).") from None
    found = _DIGEST.search(patch)
    if found is None:
        return None
    target = _TARGET.search(patch)
    moved = [_for(record, target[1].decode()) if target else record for record in records]
    same = [record for record in moved if _is(record.candidate, found[1].decode())]
    if stated := _SOURCE.search(patch):  # one program may be the kernel of several states of the source
        same = [record for record in same if record.source_hash == stated[1].decode()]
    unwrapped = re.sub(rb"\n\+#   ", b" ", patch)

    def likeness(record: KernelRecord) -> tuple[bool, bool, str]:
        stands = all(f": {text}\n".encode() in unwrapped for text in figures(record.verdict).values())
        return stands, bool(record.verdict.timing), record.created

    return max(same, key=likeness, default=None)


def _for(record: KernelRecord, target: str) -> KernelRecord:
    """Returns the record for a target of this name: equal classes in two files share their verdicts."""
    source = renamed(record.candidate.source, target, record.source_hash)
    return replace(record, target=target, candidate=replace(record.candidate, target=target, source=source))


def _is(candidate: Candidate, stated: str) -> bool:
    """Whether a candidate has this digest, whatever an earlier version wrote into its header."""
    try:
        return f"{DIGEST_LINE}{stated}\n" in candidate.source or digest(candidate.source) == stated
    except UNREADABLE:
        return False
