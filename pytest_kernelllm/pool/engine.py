"""Opens the engine that judges: the pool of processes, spread over this machine's GPUs; or a Ray cluster.

Judging is bound by Python, which prepares the inputs and steers the timing, so there are several processes for each GPU, each
with a warm judge.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

from kernelllm_judge.core.records import Environment
from kernelllm_judge.environment import Gpu, equal_gpus, find_environment, find_gpus
from pytest_kernelllm.config.settings import Settings, size_in_bytes
from pytest_kernelllm.pool.hosts import Hosts
from pytest_kernelllm.pool.jobs import Engine
from pytest_kernelllm.pool.messages import Handshake
from pytest_kernelllm.pool.pool_process import Slot
from pytest_kernelllm.pool.process_slot import ProcessSlot

PROCESS = "pytest_kernelllm.pool.judging_process"
SHARED = (PROCESS, "torch._dynamo")
"""What every judging process imports; the last when a module is called on the meta device."""

ON_GPU = ("torch._inductor.compile_fx", "pytest_kernelllm.generate.inductor.cases")
"""What judging and writing import on a GPU sooner or later, which takes as long as several verdicts."""

CLUSTER = "pytest_kernelllm.beside.cluster.engine"
"""Imported by name for ``--cluster`` only, because it is beside the way from a mark to a patch."""

PER_GPU = 8
"""Judging processes for each GPU at most, or in all without one: while one prepares inputs, another's kernel runs or compiles."""

MEMORY = 8 << 30
"""Bytes of a GPU's memory that each of them should find free, for itself and its worker."""


def open_engine(settings: Settings, environment: Environment, jobs: int | None = None) -> Engine:
    """Returns the engine for a run, to be entered; it starts its processes when they have something to do."""
    gpus = equal_gpus(find_gpus()) if environment.on_gpu else []
    if settings.cluster:
        per_gpu = processes_per_gpu(gpus, PER_GPU * max(1, len(gpus)))
        engine: Engine = import_module(CLUSTER).RayEngine(
            settings, PROCESS, _handshake(settings, environment, "", "judge"), per_gpu, *xdist_worker()
        )
        return engine
    return _pool(slots(settings, environment, gpus, jobs, *xdist_worker()), settings, environment)


def _pool(places: Sequence[Slot], settings: Settings, environment: Environment) -> Engine:
    hosts = Hosts((*SHARED, *(ON_GPU if environment.device == "cuda" else ())))
    slots = [ProcessSlot(PROCESS, place, hosts, settings.reference_deadline) for place in places]
    return Engine(slots, hosts=hosts)


def judging_environment(settings: Settings) -> Environment:
    """Returns the environment that verdicts hold for: this machine's; without a GPU here, with the cluster's GPU."""
    environment = find_environment(settings.device, settings.arch)
    if settings.cluster and environment.on_gpu and not environment.gpu:
        environment = import_module(CLUSTER).with_gpu_of(settings.cluster, environment)
    return environment


def open_writers(settings: Settings, environment: Environment) -> Engine | None:
    """Returns an engine that only prepares, on the CPU cores that judging leaves; None where it leaves none."""
    gpus = equal_gpus(find_gpus()) if environment.on_gpu else []
    spare = len(os.sched_getaffinity(0)) - len(slots(settings, environment, gpus))
    if spare < 1:
        return None
    first = Handshake(environment, "", settings.deadline, settings.isolation, judges=False)
    handshakes = [replace(first, name=process_name(f"writer {number}")) for number in range(1, spare + 1)]
    return _pool([Slot.of(each.to_json(), 1) for each in handshakes], settings, environment)


def slots(
    settings: Settings,
    environment: Environment,
    gpus: Sequence[Gpu],
    jobs: int | None = None,
    worker: int = 0,
    workers: int = 1,
) -> list[Slot]:
    """Returns as many slots as this machine can keep busy, spread over GPUs; of several pytest-xdist workers, each gets a part of them."""
    uuids = [gpu.uuid for gpu in gpus] or [""]
    cores = len(os.sched_getaffinity(0))
    total = settings.workers or len(uuids) * processes_per_gpu(gpus, cores)
    start, end = worker * total // workers, (worker + 1) * total // workers
    count = max(1, min(end - start, jobs or total))
    threads = max(1, cores // (count if workers == 1 else max(total, workers)))
    chosen = [(number + 1, uuids[number % len(uuids)]) for number in range(start, start + count)]
    handshakes = [_handshake(settings, environment, uuid, f"judge {number}") for number, uuid in chosen]
    return [Slot.of(each.to_json(), threads, each.gpu_uuid) for each in handshakes]


def _handshake(settings: Settings, environment: Environment, uuid: str, name: str) -> Handshake:
    memory, name = size_in_bytes(settings.gpu_memory), process_name(name)
    return Handshake(environment, uuid, settings.deadline, settings.isolation, memory, name=name)


def processes_per_gpu(gpus: Sequence[Gpu], cores: int) -> int:
    """Returns how many judging processes run on each GPU, or in all where there is none, by CPU cores and GPU memory."""
    room = [gpu.free // MEMORY for gpu in gpus]
    return max(1, min(PER_GPU, cores // max(1, len(gpus)), *room))


def process_name(name: str) -> str:
    """Returns a process's name in a run with pytest-xdist, too: ``gw1 judge 2``."""
    return " ".join(filter(None, [os.environ.get("PYTEST_XDIST_WORKER", ""), name]))


def xdist_worker() -> tuple[int, int]:
    """Returns the number of this pytest-xdist worker, and how many there are; ``(0, 1)`` without pytest-xdist."""
    digits = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    count = os.environ.get("PYTEST_XDIST_WORKER_COUNT", "")
    if not (digits.isdecimal() and count.isdecimal()):
        return 0, 1
    return min(int(digits), max(int(count), 1) - 1), max(int(count), 1)
