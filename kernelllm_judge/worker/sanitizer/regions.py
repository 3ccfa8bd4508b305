"""Gives every tensor of a call a virtual address of its own, far from all others, and knows what was written.

A kernel computes with virtual pointers, so a pointer shows by its address alone which tensor it was derived
from, and how far it lies from that tensor's start.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core.dispatch_mode import DispatchMode
from kernelllm_judge.shared.watch import UNWRITTEN

SHIFT = 48
"""A region's number is in the bits from this one on. Addresses of the process itself are smaller."""

_HALF = 1 << SHIFT - 1
_LOW = 0xFFF
"""Bits that a virtual address shares with the real one: kernels may depend on alignment."""


@dataclass(eq=False)
class Region:
    """The memory of one tensor: a buffer of the judge's, or a storage that the candidate allocated."""

    number: int
    start: int
    """Real address."""
    size: int
    """Bytes."""
    what: str
    """The tensor in words, as in ``the input `x```."""
    holder: Any
    """Keeps the memory, so that its address is not used again during the call."""
    written: np.ndarray | None = field(default=None, repr=False)
    """Whether each byte has been written; None: all have."""

    @property
    def base(self) -> int:
        """The virtual address of its first byte."""
        return (self.number << SHIFT) | (self.start & _LOW)

    def copy(self) -> np.ndarray:
        """Returns a copy of its bytes."""
        return np.frombuffer(ctypes.string_at(self.start, self.size), np.uint8)


class Regions:
    """Finds the region of a tensor or of a virtual address."""

    def __init__(self, block: torch.Tensor, named: Mapping[str, torch.Tensor]) -> None:
        """``block`` is the memory shared with the judge; ``named`` are the tensors in it, by their names in messages."""
        self._regions: list[Region] = []
        self._shared = block.untyped_storage().data_ptr() if block.numel() else -1
        self._storages: dict[int, Region] = {}
        self._named = [
            self._add(tensor.data_ptr(), tensor.nbytes, what, tensor) for what, tensor in named.items()
        ]

    def of(self, tensor: Any) -> Region:
        """Returns the region that a tensor or ``triton.reinterpret`` of one lies in."""
        tensor = getattr(tensor, "base", tensor)
        storage = tensor.untyped_storage()
        if storage.data_ptr() == self._shared:
            return self._inside_block(tensor)
        known = self._storages.get(storage.data_ptr())
        return known if known and known.size == storage.nbytes() else self._add_storage(tensor)

    def allocated(self, tensor: torch.Tensor) -> None:
        """Notes that a tensor's memory is new and uninitialised."""
        region = self._add_storage(tensor)
        region.written = np.zeros(region.size, bool)

    def filled(self, tensor: torch.Tensor) -> None:
        """Notes that PyTorch wrote all elements of a tensor, which may be a view."""
        region = self.of(tensor)
        if region.written is None or not tensor.numel():
            return
        size = tensor.itemsize
        first = region.written[tensor.data_ptr() - region.start :]
        strides = (*(stride * size for stride in tensor.stride()), 1)
        np.lib.stride_tricks.as_strided(first, (*tensor.shape, size), strides)[...] = True

    def at(self, addresses: np.ndarray) -> Iterator[tuple[Region | None, np.ndarray]]:
        """Yields the regions that addresses belong to, each with a mask; None for addresses without any."""
        numbers = (addresses + np.uint64(_HALF)) >> np.uint64(SHIFT)
        for number in np.unique(numbers):
            chosen = numbers == number
            if number:
                yield (self._regions[int(number) - 1] if number <= len(self._regions) else None), chosen
                continue
            for region in self._regions:  # real addresses, as of tensors of pointers
                inside = chosen & (addresses >= region.start) & (addresses < region.start + region.size)
                if inside.any():
                    yield region, inside
                    chosen = chosen & ~inside
            if chosen.any():
                yield None, chosen

    def only(self, lowest: int, highest: int) -> Region | None:
        """Returns the region if both virtual addresses belong to the same one."""
        number = (lowest + _HALF) >> SHIFT
        same = 0 < number <= len(self._regions) and number == (highest + _HALF) >> SHIFT
        return self._regions[number - 1] if same else None

    def _add(self, start: int, size: int, what: str, holder: Any) -> Region:
        region = Region(len(self._regions) + 1, start, size, what, holder)
        self._regions.append(region)
        return region

    def _add_storage(self, tensor: torch.Tensor) -> Region:
        storage = tensor.untyped_storage()
        dtype = str(tensor.dtype).removeprefix("torch.")
        region = self._add(
            storage.data_ptr(), storage.nbytes(), f"its own {dtype} {list(tensor.shape)}", storage
        )
        self._storages[storage.data_ptr()] = region
        return region

    def _inside_block(self, tensor: torch.Tensor) -> Region:
        address = tensor.data_ptr()
        around = [region for region in self._named if 0 <= address - region.start <= region.size]
        if around:
            return max(around, key=lambda region: region.start)
        last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        size = (last + 1) * tensor.itemsize if tensor.numel() else 0
        self._named.append(self._add(address, size, "a tensor of the judge's", tensor))
        return self._named[-1]


class Allocations(DispatchMode):
    """A context that keeps ``Regions`` up to date with PyTorch's own operations."""

    def __init__(self, regions: Regions) -> None:
        """``regions`` records allocations and writes."""
        super().__init__()
        self._regions = regions
        self._paused = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A context in which nothing is noted, for operations of Triton itself around a launch."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and notes what it allocates or writes."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self._paused:
            return result
        if func._schema.name in UNWRITTEN:
            if result.numel():
                self._regions.allocated(result)
            return result
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[position] if position < len(args) else kwargs.get(argument.name)
                for tensor in tree_leaves(value):
                    if isinstance(tensor, torch.Tensor):
                        self._regions.filled(tensor)
        return result
