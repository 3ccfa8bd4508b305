"""Chooses the kernel of a target to export: the adopted one, or the best in the store for its source."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.program import program_name
from kernelllm_judge.core.records import KernelRecord, Target, Verdict
from kernelllm_runtime.classes import class_digest
from pytest_kernelllm.discover.adoption import adopted_file, adoption_state

_PLAIN = (bool, int, float, str, type(None))


class NotExported(SessionError):
    """A target has no kernel that can be exported; the text names it and the reason."""


@dataclass(frozen=True)
class Export:
    """One kernel to export, and the class it is for."""

    target: Target
    source: bytes
    """The kernel module, byte for byte."""
    verdict: Verdict | None
    """The store's verdict; an adopted kernel may have none."""
    owner: str
    """Qualified name of the class."""
    digest: str
    """``class_digest`` of the class."""
    signature: inspect.Signature
    """The signature of the class's own ``forward``, with ``self``."""

    @property
    def layer(self) -> str:
        """The name for ``LocalLayerRepository``: the class's own name."""
        return self.owner.rpartition(".")[2]


def choose(root: Path, target: Target, records: Iterable[KernelRecord]) -> Export:
    """Returns the kernel to export for a target; imports the target's file.

    Raises:
        NotExported: there is no verified kernel for the target's current source, or a layer cannot contain it.
    """
    source, verdict = best_kernel(root, target, records)
    cls = _class(root, target)
    digest = class_digest(cls)
    if not digest:
        raise NotExported(
            f"{target.id}: the source of its class is not available, so later changes could not be detected."
        )
    return Export(target, source, verdict, cls.__qualname__, digest, _signature(target, cls))


def best_kernel(root: Path, target: Target, records: Iterable[KernelRecord]) -> tuple[bytes, Verdict | None]:
    """Returns a target's adopted kernel if it is current, else the best accepted one, with its verdict if there is one.

    Raises:
        NotExported: there is no verified kernel for the target's current source.
    """
    known = [r for r in records if r.source_hash == target.source_hash and r.verdict.accepted]
    state = adoption_state(root, target) if target.kernel else None
    if state == "current":
        file = adopted_file(root, target)
        assert file is not None
        source = file.read_bytes()
        kernel_hash = program_name(source.decode())
        same = [r.verdict for r in known if r.candidate.kernel_hash == kernel_hash]
        return source, min(same, key=_rank, default=None)
    if known:
        best = min(known, key=lambda record: _rank(record.verdict))
        return best.candidate.source.encode(), best.verdict
    what = f"its adopted kernel is {state}, and" if state else "it has no adopted kernel, and"
    raise NotExported(
        f"{target.id}: {what} the store has no verified one for its source; run `pytest --kernelllm`."
    )


def _rank(verdict: Verdict) -> tuple[bool, float]:
    """A sort key, the best first: verified on a GPU before interpreted, then by speed."""
    return not verdict.environment.on_gpu, -(verdict.speedup.value if verdict.speedup else 0.0)


def _class(root: Path, target: Target) -> type:
    from kernelllm_judge.target.live import TargetError, load_target

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
                f"{target.id}: the default of `{parameter.name}` is {value!r}, which cannot be written into "
                "the layer's forward; use None, a number or a string."
            )
    return signature
