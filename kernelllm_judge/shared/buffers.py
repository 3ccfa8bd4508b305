"""Allocates buffers that the judge shares with one worker, on the CPU or the GPU, without copies.

An ``Allocator`` owns one shared block and lays tensors out in it; the judge alone decides the layout.
Nothing else lies in shared memory: on the GPU every block has a CUDA memory pool of its own, because an
IPC handle opens the whole segment that PyTorch's allocator took the block from.
"""

from __future__ import annotations

import base64
import fcntl
import math
import mmap
import os
import threading
from collections.abc import Sequence
from typing import Any

import torch

from kernelllm_judge.core import accelerator

ALIGNMENT = 512
"""Bytes; the alignment of PyTorch's CUDA allocator."""

GUARD = 16 * 1024
"""Bytes of a guard zone before, between and after buffers: more than a kernel's block usually overruns."""

GUARD_BYTE = 0xFF
"""Fills guard zones: NaN in every floating dtype, so that reads out of bounds show, and a pattern to
detect writes."""


def buffer_bytes(shape: Sequence[int], dtype: torch.dtype) -> int:
    """Returns the bytes that a buffer takes in a block, with alignment and the guard zone after it."""
    count = math.prod(shape)
    return -(-max(count * dtype.itemsize, 1) // ALIGNMENT) * ALIGNMENT + GUARD


def view(block: torch.Tensor, offset: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Returns a contiguous tensor at ``offset`` bytes of a uint8 block."""
    return block[offset : offset + math.prod(shape) * dtype.itemsize].view(dtype).view(tuple(shape))


SPARE = 1 << 20
"""Bytes by which blocks on a GPU are larger than needed at first, so that buffers can be moved a little."""


LARGE = 1 << 30
"""Bytes of a block for which the judge's cache is released."""


class GpuBlock:
    """GPU memory that is shared with one worker.

    ``free`` does not wait for PyTorch's count of the processes that use it: a killed worker never
    decrements the count, and the memory would never be freed.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        """Allocates ``size`` uninitialised bytes. Not thread-safe, see ``GpuBlockPool``."""
        self._pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(self._pool, device=device):
            self.tensor = torch.empty(size, dtype=torch.uint8, device=device)
        self.handle = self.tensor.untyped_storage()._share_cuda_()

    def free(self) -> None:
        """Returns the memory to the driver. The worker must have ended, and no view of it may be in use."""
        _, _, _, _, counter, position, *_ = self.handle
        torch.UntypedStorage._release_ipc_counter_cuda(counter, position)
        del self.tensor
        del self._pool


class GpuBlockPool:
    """Allocates and frees shared blocks on one GPU. Thread-safe, unlike ``torch.cuda.use_mem_pool``."""

    def __init__(self, device: torch.device) -> None:
        """Shares one block and frees it, so that CUDA creates its own shared file."""
        self._device = device
        self._lock = threading.Lock()
        # A worker can only open that file if it exists before the worker starts.
        self.free(self.allocate(1))

    def allocate(self, size: int) -> GpuBlock:
        """Allocates a block of ``size`` bytes.

        Raises:
            torch.OutOfMemoryError: there is too little free memory.
        """
        if size > LARGE:
            accelerator.empty_cache()  # which PyTorch does not do by itself for a memory pool
        with self._lock:
            return GpuBlock(size, self._device)

    def free(self, block: GpuBlock) -> None:
        """Frees a block, see ``GpuBlock.free``."""
        with self._lock:
            block.free()


class Allocator:
    """Lays buffers out in memory on ``device`` that the judge shares with one worker."""

    def __init__(self, device: torch.device, pool: GpuBlockPool | None = None) -> None:
        """``pool`` allocates the memory on a GPU; None on a CPU."""
        self.device = device
        self.fd = _shared_file() if device.type == "cpu" else -1
        self._pool = pool
        self._block = torch.empty(0, dtype=torch.uint8)
        self._held: list[GpuBlock] = []
        self.closed = threading.Event()
        self._used = 0
        self._off = 0
        self._gaps: list[tuple[int, int]] = []

    def reserve(self, size: int, shift: int = 0, off: int = 0) -> dict[str, Any] | None:
        """Drops all buffers, reserves ``size`` bytes for new ones, and fills them with the guard pattern.

        Args:
            size: sum of ``buffer_bytes`` of the new buffers.
            shift: bytes, a multiple of ``ALIGNMENT``, by which the first buffer starts later than usual.
            off: elements by which every buffer starts later than at an aligned address.

        Returns:
            What the worker needs to attach, as JSON, if the block is a new one; None if it is attached
                already.
        """
        attachment = self._grow(size + shift + GUARD)
        self._block.fill_(GUARD_BYTE)
        self._used = shift + GUARD
        self._off = off
        self._gaps = [(0, self._used)]
        return attachment

    def _grow(self, size: int) -> dict[str, Any] | None:
        if size <= self._block.numel():
            return None
        if self.device.type == "cpu":
            if os.fstat(self.fd).st_size < size:
                os.ftruncate(self.fd, size)
            self._block = _map(self.fd, size)
            return {"device": "cpu", "size": size}
        assert self._pool is not None
        # An outgrown block is kept: freeing memory that another process has open is undefined in CUDA.
        size += SPARE
        block = self._pool.allocate(size)
        self._held.append(block)
        self._block = block.tensor
        return {
            "device": "cuda",
            "size": size,
            "handle": [_encode(part) for part in block.handle],
            "offset": self._block.storage_offset(),
        }

    def buffer(self, shape: Sequence[int], dtype: torch.dtype) -> tuple[torch.Tensor, dict[str, Any]]:
        """Adds a buffer; returns the judge's view of it and its description for the worker."""
        start = self._used
        offset = start + self._off * dtype.itemsize
        self._used += buffer_bytes(shape, dtype)
        if self._used > self._block.numel():
            raise MemoryError(f"the shared block of {self._block.numel()} bytes is full; reserve more")
        buffer = view(self._block, offset, shape, dtype)
        self._gaps += [(start, offset), (offset + buffer.nbytes, self._used)]
        description = {"offset": offset, "shape": list(shape), "dtype": str(dtype).removeprefix("torch.")}
        return buffer, description

    def intact(self) -> bool:
        """Whether every guard zone still holds its pattern."""
        written = [(self._block[start:end] != GUARD_BYTE).any() for start, end in self._gaps]
        return not bool(torch.stack(written).any())

    def close(self) -> None:
        """Frees the memory. The worker must have ended."""
        del self._block
        while self._held:
            assert self._pool is not None
            self._pool.free(self._held.pop())
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self.closed.set()


def attach(description: dict[str, Any], fd: int) -> torch.Tensor:
    """Returns the worker's view of an allocator's block: a uint8 tensor over the same memory."""
    if description["device"] == "cpu":
        return _map(fd, description["size"])
    torch.cuda.init()  # opening a handle before that is a segmentation fault
    storage = torch.UntypedStorage._new_shared_cuda(*[_decode(part) for part in description["handle"]])
    block = torch.empty(0, dtype=torch.uint8, device=f"cuda:{storage.device.index}")
    # The stub of `set_` does not know UntypedStorage.
    return block.set_(storage, description["offset"], (description["size"],))  # type: ignore[call-overload, no-any-return]


def _shared_file() -> int:
    """Creates a memory file that the worker cannot shrink: reading beyond its end would crash the judge."""
    fd = os.memfd_create("kernelllm-buffers", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return fd


def _map(fd: int, size: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)


def _encode(part: Any) -> Any:
    return {"b64": base64.b64encode(part).decode()} if isinstance(part, bytes) else part


def _decode(part: Any) -> Any:
    return base64.b64decode(part["b64"]) if isinstance(part, dict) else part
