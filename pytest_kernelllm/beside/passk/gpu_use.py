"""Watches how busy the GPUs are while a benchmark runs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from kernelllm_judge.environment import equal_gpus, find_gpus
from pytest_kernelllm.beside.passk.records import GpuUse

INTERVAL = 0.25
"""Seconds between two looks. NVML gives the busy share of the last 1/6 to 1 second, depending on the GPU."""


@contextlib.contextmanager
def watching_gpus() -> Iterator[Callable[[], GpuUse | None]]:
    """Watches the GPUs on which is judged; yields a function for how they were used so far, None without a GPU."""
    uuids = [gpu.uuid for gpu in equal_gpus(find_gpus())]
    if not uuids:
        yield lambda: None
        return
    busy: list[float] = []
    peaks: list[int] = [0]
    begun, over = time.monotonic(), threading.Event()
    thread = threading.Thread(target=_watch, args=(uuids, busy, peaks, over), daemon=True)
    thread.start()
    try:
        yield (
            lambda: (
                GpuUse(round(fmean(busy), 4), peaks[0], round(time.monotonic() - begun, 3)) if busy else None
            )
        )
    finally:
        over.set()
        thread.join()


def _watch(uuids: Sequence[str], busy: list[float], peaks: list[int], over: threading.Event) -> None:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return
    try:
        handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        while not over.wait(INTERVAL):
            rates = [pynvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles]
            busy.append(fmean(rates) / 100)
            peaks[0] = max(
                peaks[0], *(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)
            )
    except pynvml.NVMLError:
        return  # what was seen so far counts
    finally:
        pynvml.nvmlShutdown()
