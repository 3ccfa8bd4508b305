"""Shared buffers: memory the judge makes and shares with one worker, on the CPU or the GPU, without copies.

An ``Allocator`` is one shared block; buffers are tensors laid out in it. The judge alone decides the layout. Nothing else
lies in memory that is shared: on the GPU every block has an allocator's pool of its own, because an IPC handle opens
the whole segment that the allocator cut a buffer from.
"""

from __future__ import annotations

import base64
import fcntl
import mmap
import os
import threading
from collections.abc import Sequence
from typing import Any

import torch

ALIGNMENT = 512
"""Bytes; what PyTorch's CUDA allocator gives every tensor."""

GUARD = 16 * 1024
"""Bytes of guard zone before, between and behind buffers: more than a block of a kernel usually reaches too far."""

GUARD_BYTE = 0xFF
"""Fills guard zones: NaN in every floating dtype, so that a read beyond a buffer shows, and a known pattern for writes."""


def buffer_bytes(shape: Sequence[int], dtype: torch.dtype) -> int:
    """Bytes a buffer takes in an allocator, alignment and the guard zone behind it included."""
    count = 1
    for size in shape:
        count *= size
    return -(-max(count * dtype.itemsize, 1) // ALIGNMENT) * ALIGNMENT + GUARD


def view(block: torch.Tensor, offset: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A contiguous tensor at ``offset`` bytes of a uint8 block."""
    count = 1
    for size in shape:
        count *= size
    return block[offset : offset + count * dtype.itemsize].view(dtype).view(tuple(shape))


class GpuBlock:
    """GPU memory that is shared with one worker. PyTorch's own count of who holds it is not waited for: a worker that
    is ended never says that it has let go, and its memory would be kept for good."""

    def __init__(self, size: int, device: torch.device) -> None:
        """``size`` bytes, uninitialised. Not thread-safe, because ``torch.cuda.use_mem_pool`` is not: see ``GpuBlockPool``."""
        self._pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(self._pool, device=device):
            self.tensor = torch.empty(size, dtype=torch.uint8, device=device)
        self.handle = self.tensor.untyped_storage()._share_cuda_()

    def free(self) -> None:
        """Give the memory back to the driver. The worker must have ended, and nobody hold a view."""
        _, _, _, _, counter, position, *_ = self.handle
        torch.UntypedStorage._release_ipc_counter_cuda(counter, position)
        del self.tensor
        del self._pool


class GpuBlockPool:
    """Makes and frees blocks on one GPU. Thread-safe."""

    def __init__(self, device: torch.device) -> None:
        """Nothing is shared yet."""
        self._device = device
        self._lock = threading.Lock()
        # The first share makes CUDA's own file, which a worker can only reach if it exists before the worker does.
        self.free(self.allocate(1))

    def allocate(self, size: int) -> GpuBlock:
        """A block of ``size`` bytes.

        Raises:
            torch.cuda.OutOfMemoryError: there is none.
        """
        with self._lock:
            return GpuBlock(size, self._device)

    def free(self, block: GpuBlock) -> None:
        """Give a block back, see ``GpuBlock.free``."""
        with self._lock:
            block.free()


class Allocator:
    """The judge's end of a block on ``device`` that it shares with one worker."""

    def __init__(self, device: torch.device, pool: GpuBlockPool | None = None) -> None:
        """``pool``: where allocators on a GPU come from."""
        self.device = device
        self.fd = _shared_file() if device.type == "cpu" else -1
        self._pool = pool
        self._block = torch.empty(0, dtype=torch.uint8)
        self._held: list[GpuBlock] = []
        self.closed = threading.Event()
        self._used = 0
        self._gaps: list[tuple[int, int]] = []

    def reserve(self, size: int, shift: int = 0) -> dict[str, Any] | None:
        """Forget the layout, make room for buffers of ``size`` bytes in all, and fill it with the guard pattern.

        Args:
            size: sum of ``buffer_bytes``.
            shift: bytes, a multiple of ``ALIGNMENT``, by which the first buffer starts later than usual.

        Returns:
            What the worker needs to attach, JSON-ready, if the block is a new one; None if it holds it already.
        """
        attachment = self._grow(size + shift + GUARD)
        self._block.fill_(GUARD_BYTE)
        self._used = shift + GUARD
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
        # An outgrown block is kept: CUDA does not define what becomes of memory that is freed while another process has it.
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
        """Lay out one more tensor: the judge's view of it, and its description for the worker."""
        offset = self._used
        self._used += buffer_bytes(shape, dtype)
        if self._used > self._block.numel():
            raise MemoryError(f"an allocator of {self._block.numel()} bytes is full")
        buffer = view(self._block, offset, shape, dtype)
        self._gaps.append((offset + buffer.nbytes, self._used))
        description = {"offset": offset, "shape": list(shape), "dtype": str(dtype).removeprefix("torch.")}
        return buffer, description

    def intact(self) -> bool:
        """Whether every guard zone still holds its pattern."""
        written = [(self._block[start:end] != GUARD_BYTE).any() for start, end in self._gaps]
        return not bool(torch.stack(written).any())

    def close(self) -> None:
        """Give the memory back. The worker must have ended."""
        del self._block
        while self._held:
            assert self._pool is not None
            self._pool.free(self._held.pop())
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self.closed.set()


def attach(description: dict[str, Any], fd: int) -> torch.Tensor:
    """The worker's end of an allocator: a uint8 tensor over the same memory."""
    if description["device"] == "cpu":
        return _map(fd, description["size"])
    torch.cuda.init()  # opening a handle before that is a segmentation fault
    storage = torch.UntypedStorage._new_shared_cuda(*[_decode(part) for part in description["handle"]])
    block = torch.empty(0, dtype=torch.uint8, device=f"cuda:{storage.device.index}")
    return block.set_(storage, description["offset"], (description["size"],))  # type: ignore[call-overload, no-any-return]  # UntypedStorage is missing from the stub


def _shared_file() -> int:
    """A file in memory that its other holder cannot shrink: reading beyond its end would end the judge."""
    fd = os.memfd_create("kernelllm-buffers", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return fd


def _map(fd: int, size: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)


def _encode(part: Any) -> Any:
    return {"b64": base64.b64encode(part).decode()} if isinstance(part, bytes) else part


def _decode(part: Any) -> Any:
    return base64.b64decode(part["b64"]) if isinstance(part, dict) else part
