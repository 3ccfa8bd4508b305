# ruff: noqa: SIM905 (words are easier to read and to sort than quoted strings)
"""Watches a call: counts torch's operations, and puts memory that they allocate between guard zones.

Runs in the worker around calls of the candidate, and in the judge around calls of the original.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.dispatch_mode import DispatchMode
from kernelllm_judge.shared.buffers import GUARD

UNWRITTEN = frozenset(
    f"aten::{name}"
    for name in """
        empty empty_like empty_permuted empty_strided new_empty new_empty_strided
    """.split()
)
"""Operations that return uninitialised memory. It is poisoned, so that elements left unwritten show."""

WRITTEN = frozenset(
    f"aten::{name}"
    for name in """
        _to_copy clone full full_like new_full new_ones new_zeros ones ones_like zeros zeros_like
    """.split()
)
"""Operations that return fresh memory with values."""

ALLOCATING = UNWRITTEN | WRITTEN

COPIES = frozenset({"aten::_to_copy", "aten::clone"})
"""Those of them whose values are the first argument's; all others write the same value everywhere."""

PATTERNS = range(0x7F81, 0x8000)
"""Patterns of 16 bits that fill guard zones: NaN in every floating dtype. Each block gets another one,
different from the judge's, so that a pattern read from one guard zone shows if it is written to
another."""

HELD = 1 << 28
"""Bytes of guarded memory that are kept until the call ends. Beyond, blocks that the candidate has freed
are checked and released earlier."""


@dataclass(frozen=True)
class _Block:
    """A tensor's memory between guard zones."""

    memory: torch.Tensor
    size: int
    """Bytes between the guard zones."""
    pattern: int
    what: str
    holder: weakref.ref[Any]
    """Dead once no tensor refers to the memory any more."""

    def broken(self) -> list[str]:
        """Describes writes to the guard zones; empty if there are none."""
        zones = ((self.memory[:GUARD], "before"), (self.memory[GUARD + self.size :], "behind"))
        places = [where for zone, where in zones if not _holds(zone, self.pattern)]
        return [f"{where} a tensor that it allocated ({self.what})" for where in places]


class OperationWatch(DispatchMode):
    """A context in which torch's operations are counted by name, with the elements that they touch."""

    def __init__(self, *, guarded: bool = True) -> None:
        """``guarded``: put fresh memory between guard zones."""
        super().__init__()
        self.elements: Counter[str] = Counter()
        self._guarded = guarded
        self._blocks: list[_Block] = []
        self._broken: list[str] = []
        self._made = 0
        self._bytes = 0
        self._bound = HELD
        self._unguarded = 0

    @contextlib.contextmanager
    def unguarded(self) -> Iterator[None]:
        """A context in which fresh memory is not guarded, for torch operations of Triton itself around a launch.

        Operations are still counted: Triton calls functions of the candidate there, for the grid and from hooks. Its
        own operations only allocate, fill and copy.
        """
        self._unguarded += 1
        try:
            yield
        finally:
            self._unguarded -= 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs and counts one operation; puts memory that it allocates between guard zones."""
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        self.elements[name] += max((tensor.numel() for tensor in tensors), default=0)
        if self._unguarded or not (self._guarded and name in ALLOCATING and result.numel()):
            return result
        values = None
        if name in WRITTEN:
            values = args[0] if name in COPIES else result.as_strided((), ()).clone()
        form = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="meta")
        size, device = result.untyped_storage().nbytes(), result.device
        del result, tensors
        if accelerator.is_gpu(device) and size > HELD:
            accelerator.empty_cache()  # there may be no memory for two
        return self._between_guards(form, size, device, values)

    def _between_guards(
        self, form: torch.Tensor, size: int, device: torch.device, values: torch.Tensor | None
    ) -> torch.Tensor:
        """Returns a tensor in a block with a guard zone on either side.

        Args:
            form: a tensor of the same shape, strides and dtype, without data.
            size: bytes of its memory.
            device: where the block lies.
            values: what is written to it, if anything.
        """
        pattern = PATTERNS[self._made % len(PATTERNS)]
        self._made += 1
        words = GUARD + (size + 1) // 2
        block = torch.full((words,), pattern, dtype=torch.int16, device=device).view(torch.uint8)
        holder = _Inside(block, size) if accelerator.is_gpu(block.device) else block.numpy()
        inner = _storage_inside(holder, size)
        if values is None and form.dtype == torch.bool:
            inner.fill_(1)  # other bytes are not valid booleans
        tensor = torch.empty(0, dtype=form.dtype, device=device)
        tensor.set_(inner.untyped_storage(), 0, form.size(), form.stride())
        if values is not None:
            tensor.copy_(values)
        what = f"{str(form.dtype).removeprefix('torch.')} {list(form.shape)}"
        self._blocks.append(_Block(block, size, pattern, what, weakref.ref(holder)))
        self._bytes += block.nbytes
        if self._bytes > self._bound:
            self._release_freed()
        return tensor

    def _release_freed(self) -> None:
        """Checks and releases blocks that the candidate has freed, to bound the memory of long calls."""
        held = []
        for block in self._blocks:
            if block.holder() is not None:
                held.append(block)
            else:
                self._broken += block.broken()
        self._blocks, self._bytes = held, sum(block.memory.nbytes for block in held)
        self._bound = HELD + 2 * self._bytes

    def broken_guards(self) -> list[str]:
        """Describes all writes to guard zones: ``before`` or ``behind`` which tensor."""
        return self._broken + [text for block in self._blocks for text in block.broken()]


def _holds(zone: torch.Tensor, pattern: int) -> bool:
    """Whether a guard zone, which ends with a whole word, still holds its pattern everywhere."""
    odd = zone.numel() % 2
    words_kept = (zone[odd:].view(torch.int16) == pattern).all()
    return bool(words_kept) and (not odd or int(zone[0]) == pattern >> 8)


class _Inside:
    """Exposes part of a block of GPU memory by ``__cuda_array_interface__``. Keeps the block alive."""

    def __init__(self, block: torch.Tensor, size: int) -> None:
        self.block = block
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (block.data_ptr() + GUARD, False),
            "version": 3,
        }


def _storage_inside(holder: Any, size: int) -> torch.Tensor:
    """Returns the bytes between the guard zones as a storage of their own.

    ``as_strided`` counts from the start of a storage.
    """
    if isinstance(holder, _Inside):
        return torch.as_tensor(holder, device=holder.block.device)
    return torch.frombuffer(holder, dtype=torch.uint8, count=size, offset=GUARD)
