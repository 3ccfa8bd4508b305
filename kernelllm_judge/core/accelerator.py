"""The accelerator that the judge and its workers run on: its memory, its events, its random numbers.

They ask here, and never a vendor's part of PyTorch. Where ``torch.accelerator`` has no answer, PyTorch's module for the device
does (``torch.cuda`` on NVIDIA and ROCm, ``torch.xpu`` on Intel).
"""

from __future__ import annotations

from typing import Any

import torch


def gpu() -> torch.device:
    """Returns the first GPU of the kind that this PyTorch is built for. Initialises nothing."""
    return torch.device((torch.accelerator.current_accelerator() or torch.device("cuda")).type, 0)


def is_gpu(device: torch.device | str) -> bool:
    """Whether a device is a GPU: neither the CPU nor one without memory."""
    return torch.device(device).type not in ("cpu", "meta")


def _module() -> Any:
    return torch.get_device_module(gpu())


# --------------------------------------------------------------------------- time


def timing_event() -> Any:
    """Returns an event that can be recorded in the current stream and timed: ``a.elapsed_time(b)`` is in ms."""
    return _module().Event(enable_timing=True)


def synchronize() -> None:
    """Waits until the current GPU has done what was launched."""
    torch.accelerator.synchronize()


def in_use() -> bool:
    """Whether this process has initialised its GPU."""
    return bool(_module().is_initialized())


def is_capturing() -> bool:
    """Whether the current stream is captured into a graph; waiting for the GPU would then be an error."""
    asked = getattr(_module(), "is_current_stream_capturing", None)
    return bool(asked()) if asked and in_use() else False


# --------------------------------------------------------------------------- memory


def total_bytes() -> int:
    """Bytes of memory of the first GPU."""
    return int(properties().total_memory)


def free_bytes() -> int:
    """Bytes that no process has taken. The driver takes long to answer where many use the GPU."""
    return int(_module().mem_get_info()[0])


def cached_bytes() -> int:
    """Bytes that PyTorch keeps for this process, and no tensor uses."""
    return torch.accelerator.memory_reserved() - torch.accelerator.memory_allocated()


def empty_cache() -> None:
    """Gives the memory that PyTorch keeps for this process back to the others."""
    torch.accelerator.empty_cache()


def limit_memory(share: float) -> None:
    """Limits what this process may allocate, as a share (0 to 1) of the GPU's memory."""
    _module().set_per_process_memory_fraction(min(1.0, share))


class PeakMemory:
    """Measures the most memory that this process's tensors take at once from now on, besides what they take already."""

    def __init__(self) -> None:
        """Starts here; only one at a time."""
        torch.accelerator.reset_peak_memory_stats()
        self._held = torch.accelerator.memory_allocated()

    @property
    def bytes(self) -> int:
        """What came on top so far."""
        return max(int(torch.accelerator.max_memory_allocated() - self._held), 0)


# --------------------------------------------------------------------------- what it is


def properties() -> Any:
    """Returns the first GPU's properties, as PyTorch names them."""
    return _module().get_device_properties(0)


# --------------------------------------------------------------------------- random numbers


def seed(number: int) -> None:
    """Seeds the random numbers of all GPUs; does nothing without one."""
    if _module().is_available():
        _module().manual_seed_all(number)


def random_state() -> bytes | None:
    """Returns the state of the GPU's random numbers; None where it is not initialised."""
    return _module().get_rng_state().numpy().tobytes() if in_use() else None
