"""Which kernel of a target is exported: the adopted one, else the best that the store knows for its source."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_kernelllm.core.errors import SessionError
from pytest_kernelllm.core.records import KernelRecord, Target, Verdict
from pytest_kernelllm.discover.adoption import adopted_file, adoption_state
from pytest_kernelllm.export.shipped.guard import class_digest

_PLAIN = (bool, int, float, str, type(None))


class NotExported(SessionError):
    """A target has nothing that can be exported; the text names it and says why."""


@dataclass(frozen=True)
class Export:
    """One kernel to export, and the class it is for."""

    target: Target
    source: bytes
    """The kernel module, byte for byte."""
    verdict: Verdict | None
    """What the store knows of it; an adopted kernel need not be there."""
    owner: str
    """Qualified name of the class."""
    digest: str
    """The class's ``class_digest``."""
    signature: inspect.Signature
    """Of the class's own ``forward``, with ``self``."""

    @property
    def layer(self) -> str:
        """What ``LocalLayerRepository`` calls it: the class's own name."""
        return self.owner.rpartition(".")[2]


def choose(root: Path, target: Target, records: Iterable[KernelRecord]) -> Export:
    """The kernel to export for a target; imports the target's file.

    Args:
        root: the project root.
        target: as the scan found it.
        records: the store's verdicts.

    Raises:
        NotExported: there is no verified kernel for the target as it is, or none that such a layer can carry.
    """
    known = [r for r in records if r.source_hash == target.source_hash and r.verdict.accepted]
    source, verdict = _kernel(root, target, known)
    cls = _class(root, target)
    digest = class_digest(cls)
    if not digest:
        raise NotExported(
            f"{target.id}: its source cannot be read back, so nobody could see that it changed."
        )
    return Export(target, source, verdict, cls.__qualname__, digest, _signature(target, cls))


def _kernel(root: Path, target: Target, known: list[KernelRecord]) -> tuple[bytes, Verdict | None]:
    state = adoption_state(root, target) if target.kernel else None
    if state == "current":
        file = adopted_file(root, target)
        assert file is not None
        source = file.read_bytes()
        digest = hashlib.sha256(source).hexdigest()
        same = [r.verdict for r in known if r.verdict.kernel_hash == digest]
        return source, min(same, key=_rank, default=None)
    if known:
        best = min(known, key=lambda record: _rank(record.verdict))
        return best.candidate.source.encode(), best.verdict
    what = f"its adopted kernel is {state}, and" if state else "it has no adopted kernel, and"
    raise NotExported(
        f"{target.id}: {what} the store knows no verified one for its source; run `pytest --kernelllm`."
    )


def _rank(verdict: Verdict) -> tuple[bool, float]:
    """The best is the least: seen on a GPU before interpreted, then the fastest."""
    return verdict.environment.device != "cuda", -(verdict.speedup.value if verdict.speedup else 0.0)


def _class(root: Path, target: Target) -> type:
    from pytest_kernelllm.discover.live import TargetError, load_target

    try:
        return load_target(root, target).cls
    except TargetError as error:
        raise NotExported(str(error)) from None


def _signature(target: Target, cls: type) -> inspect.Signature:
    signature = inspect.signature(cls.forward)  # type: ignore[attr-defined]  # every nn.Module class has it
    for parameter in signature.parameters.values():
        value = parameter.default
        infinite = isinstance(value, float) and not math.isfinite(value)
        if value is not parameter.empty and (infinite or type(value) not in _PLAIN):
            raise NotExported(
                f"{target.id}: the default of `{parameter.name}` is {value!r}, which a layer's forward cannot "
                "repeat; use None, a number or a text."
            )
    return signature
