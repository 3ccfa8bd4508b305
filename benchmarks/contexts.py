"""How many CUDA contexts a second the driver makes, in fresh processes, with several at once and over several GPUs.

    python benchmarks/contexts.py [--each 6]

Every candidate has a process and so a context of its own, so this bounds the verdicts a minute of a whole machine. Measured with
as many hardware queues as the driver sets up by itself, and with the one that the judge's workers have.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import multiprocessing as mp
import os
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from statistics import fmean

from kernelllm_judge.environment import equal_gpus, find_gpus
from kernelllm_judge.supervisor import QUEUES


def make_context(times: Queue[tuple[float, float]]) -> None:
    """In a process of its own: seconds of ``cuInit``, and of the first GPU's context."""
    start = time.perf_counter()
    driver = ctypes.CDLL("libcuda.so.1")
    if driver.cuInit(0):
        raise SystemExit("cuInit failed")
    ready = time.perf_counter()
    if driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0):
        raise SystemExit("no context")
    times.put((ready - start, time.perf_counter() - ready))


def make_some(
    times: Queue[tuple[float, float]], start: Event, environment: dict[str, str], each: int
) -> None:
    """``each`` processes on one GPU, one after the other."""
    os.environ |= environment
    start.wait()
    for _ in range(each):
        process = mp.Process(target=make_context, args=(times,))
        process.start()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=6, help="contexts each process makes")
    each: int = parser.parse_args().each
    uuids = [gpu.uuid for gpu in equal_gpus(find_gpus())]
    if not uuids:
        raise SystemExit("There is no GPU here.")
    crowds = [crowd for crowd in ((1, 1), (4, 1), (8, 1), (4, 2), (8, 2), (16, 4)) if crowd[1] <= len(uuids)]
    for queues, (count, gpus) in itertools.product(({}, QUEUES), crowds):
        times: Queue[tuple[float, float]] = mp.Queue()
        start = mp.Event()
        workers = [
            mp.Process(
                target=make_some,
                args=(times, start, queues | {"CUDA_VISIBLE_DEVICES": uuids[i % gpus]}, each),
            )
            for i in range(count)
        ]
        for worker in workers:
            worker.start()
        begun = time.perf_counter()
        start.set()
        found = [times.get(timeout=120) for _ in range(each * count)]
        took = time.perf_counter() - begun
        for worker in workers:
            worker.join()
        init, context = (1000 * fmean(part) for part in zip(*found, strict=True))
        print(
            f"{count} processes on {gpus} GPUs{', one queue' if queues else ''}: {len(found) / took:.1f} contexts a second; "
            f"cuInit {init:.0f} ms, context {context:.0f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
