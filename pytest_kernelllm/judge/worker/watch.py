"""What torch does during a call: operations counted, and memory from ``torch.empty`` and its like put between guard zones.

Runs in the worker, around calls of the candidate, and in the judge, around the original.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pytest_kernelllm.judge.worker.slabs import GUARD

UNWRITTEN = frozenset(
    f"aten::{name}"
    for name in (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
    )
)
"""Operations whose result holds nothing yet: it is poisoned, so that what a kernel leaves out shows."""

WRITTEN = frozenset(
    f"aten::{name}"
    for name in (
        "_to_copy",
        "clone",
        "full",
        "full_like",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones",
        "ones_like",
        "zeros",
        "zeros_like",
    )
)
"""Operations that give fresh memory with content."""

ALLOCATING = UNWRITTEN | WRITTEN

PATTERNS = range(0x7F81, 0x8000)
"""16 bits that fill a block: NaN in every floating dtype. Another for every block, and none that of the judge's slabs, so that
what was read beyond one end shows where it is stored beyond another."""


class Watch(TorchDispatchMode):
    """Inside, torch operations are counted by name, with the elements that they touch."""

    def __init__(self, *, guarded: bool = True) -> None:
        """``guarded``: fresh memory lies between guard zones."""
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.elements: Counter[str] = Counter()
        self._guarded = guarded
        self._blocks: list[tuple[torch.Tensor, int, int, str]] = []
        self._paused = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled inside, and the precaution would import the whole compiler, some three seconds."""
        return False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, nothing is counted: Triton's own housekeeping around a launch."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count one operation; guard what it allocates."""
        result = func(*args, **(kwargs or {}))
        if self._paused:
            return result
        name = func._schema.name
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        self.elements[name] += max((tensor.numel() for tensor in tensors), default=0)
        if self._guarded and name in ALLOCATING and result.numel():
            return self._between_guards(result, written=name in WRITTEN)
        return result

    def _between_guards(self, fresh: torch.Tensor, *, written: bool) -> torch.Tensor:
        """The same tensor in a block with a guard zone on either side."""
        size = fresh.untyped_storage().nbytes()
        pattern = PATTERNS[len(self._blocks) % len(PATTERNS)]
        words = GUARD + (size + 1) // 2
        block = torch.full((words,), pattern, dtype=torch.int16, device=fresh.device).view(torch.uint8)
        inner = _storage_inside(block, size)
        if not written and fresh.dtype == torch.bool:
            inner.fill_(1)  # other bytes are no booleans
        tensor = torch.empty(0, dtype=fresh.dtype, device=fresh.device)
        tensor.set_(inner.untyped_storage(), 0, fresh.size(), fresh.stride())
        if written:
            tensor.copy_(fresh)
        self._blocks.append(
            (block, size, pattern, f"{str(fresh.dtype).removeprefix('torch.')} {list(fresh.shape)}")
        )
        return tensor

    def broken_guards(self) -> list[str]:
        """What was written outside, in words: ``before`` or ``behind`` which tensor."""
        said = []
        for block, size, pattern, what in self._blocks:
            for zone, where in ((block[:GUARD], "before"), (block[GUARD + size :], "behind")):
                if not _holds(zone, pattern):
                    said.append(f"{where} a tensor that it allocated ({what})")
        return said


def _holds(zone: torch.Tensor, pattern: int) -> bool:
    """Whether all of a zone, which ends with a whole word, still holds the pattern."""
    odd = zone.numel() % 2
    words_kept = (zone[odd:].view(torch.int16) == pattern).all()
    return bool(words_kept) and (not odd or int(zone[0]) == pattern >> 8)


class _Inside:
    """Part of a block of GPU memory, for whoever speaks ``__cuda_array_interface__``. Keeps the block alive."""

    def __init__(self, block: torch.Tensor, size: int) -> None:
        self.block = block
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (block.data_ptr() + GUARD, False),
            "version": 3,
        }


def _storage_inside(block: torch.Tensor, size: int) -> torch.Tensor:
    """Bytes between the guard zones, as a storage of their own: ``as_strided`` counts from where a storage starts."""
    if block.is_cuda:
        return torch.as_tensor(_Inside(block, size), device=block.device)
    return torch.frombuffer(block.numpy(), dtype=torch.uint8, count=size, offset=GUARD)
