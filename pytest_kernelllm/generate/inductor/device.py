"""Describes the GPU that TorchInductor writes for, which need not be in the machine."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.core.architectures import architecture


@dataclass(frozen=True)
class Gpu:
    """The properties that TorchInductor decides by, under the names that ``torch.cuda`` gives them."""

    name: str
    major: int
    minor: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    L2_cache_size: int
    """Bytes."""
    shared_memory_per_multiprocessor: int
    """Bytes."""
    shared_memory_per_block_optin: int
    """Bytes."""
    shared_memory_per_block: int = 48 << 10
    """Bytes, without opting in to more."""
    regs_per_multiprocessor: int = 65_536
    max_threads_per_block: int = 1024
    warp_size: int = 32
    tf32: float = 0.0
    """How many times as many products a second it computes in TF32 as in float32, by its vendor's figures for dense matrices."""

    @property
    def capability(self) -> int:
        """90 for ``sm_90``."""
        return 10 * self.major + self.minor


_KNOWN = (
    Gpu("Tesla T4", 7, 5, 40, 1024, 4 << 20, 64 << 10, 64 << 10),
    Gpu("A100", 8, 0, 108, 2048, 40 << 20, 164 << 10, 163 << 10, tf32=8.0),
    Gpu("RTX A6000", 8, 6, 84, 1536, 6 << 20, 100 << 10, 99 << 10, tf32=2.0),
    Gpu("L4", 8, 9, 58, 1536, 48 << 20, 100 << 10, 99 << 10, tf32=2.0),
    Gpu("H200", 9, 0, 132, 2048, 60 << 20, 228 << 10, 227 << 10, tf32=7.4),
    Gpu("B200", 10, 0, 148, 2048, 126 << 20, 228 << 10, 227 << 10, tf32=15.0),
    Gpu("RTX PRO 6000", 12, 0, 188, 1536, 128 << 20, 100 << 10, 99 << 10, tf32=1.0),
)


def gpu_for(arch: str) -> Gpu:
    """Returns the GPU that stands for an architecture.

    The text that is written depends on the architecture alone, so that a machine without a GPU writes the same.

    Args:
        arch: such as ``sm_90``. One that is not known is described as the newest known one below it; another vendor's as an A100,
            whose programs use nothing that came later.
    """
    number = architecture(arch).number
    capability = number if isinstance(number, int) else 80
    older = [gpu for gpu in _KNOWN if gpu.capability <= capability]
    return older[-1] if older else _KNOWN[0]
