"""Finds the GPU, driver and versions that a verdict holds for, without importing torch."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernelllm_judge.core.records import Environment
from kernelllm_judge.standing import policy


@dataclass(frozen=True)
class Gpu:
    """A GPU that this process can use."""

    name: str
    driver: str
    arch: str
    uuid: str
    free: int = 0
    """Bytes of memory that were free when this was measured."""


def find_gpus() -> tuple[Gpu, ...]:
    """Returns the GPUs visible to this process, in CUDA's order, by NVML; empty without a GPU or driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return ()
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        uuids = [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        return tuple(_describe(uuid) for uuid in visible_uuids(uuids, visible))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def visible_uuids(uuids: Sequence[str], visible: str | None) -> list[str]:
    """Applies ``CUDA_VISIBLE_DEVICES`` to a machine's GPUs.

    Like CUDA, ignores all after the first invalid entry.
    """
    if visible is None:
        return list(uuids)
    chosen: list[str] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.isdigit():
            named = uuids[int(entry) : int(entry) + 1]
        elif entry.startswith("MIG-"):
            named = [entry]
        else:
            named = [uuid for uuid in uuids if entry and uuid.startswith(entry)]
        if len(named) != 1:
            break
        chosen += named
    return list(dict.fromkeys(chosen))


def find_gpu() -> Gpu | None:
    """Returns the first GPU visible to this process."""
    return next(iter(find_gpus()), None)


def take_gpu() -> Gpu | None:
    """Returns the GPU for judging in this process: the first one; in pytest-xdist workers, one after the other in turn.

    A pytest-xdist worker is bound to its GPU: ``CUDA_VISIBLE_DEVICES`` is set for it and its child
    processes. Where CUDA is already initialised (by a conftest, say), that has no effect any more and the
    first GPU is returned.
    """
    gpus = find_gpus()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if len(gpus) < 2 or not worker or _cuda_in_use():
        return gpus[0] if gpus else None
    gpu = gpu_of_worker(equal_gpus(gpus), worker)
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu.uuid
    return gpu


def gpu_of_worker(gpus: Sequence[Gpu], worker: str) -> Gpu:
    """Returns the GPU for the pytest-xdist worker ``gw0``, ``gw1``…, assigned in turn."""
    digits = "".join(c for c in worker if c.isdecimal())
    return gpus[int(digits or 0) % len(gpus)]


def equal_gpus(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Returns the GPUs of the same model as the first: a verdict must not depend on which one was free."""
    return [gpu for gpu in gpus if (gpu.name, gpu.arch) == (gpus[0].name, gpus[0].arch)]


def find_environment(device: Literal["auto", "cpu", "cuda"] = "auto", arch: str = "sm_90") -> Environment:
    """Returns the environment that verdicts given by this process hold for.

    Args:
        device: where candidates run; ``auto`` takes the GPU if there is one.
        arch: the GPU architecture that kernels are compiled for where there is no GPU.
    """
    gpu = find_gpu() if device != "cpu" else None
    used: Literal["cpu", "cuda"] = "cuda" if gpu or device == "cuda" else "cpu"
    return Environment(
        device=used,
        gpu=gpu.name if gpu else "",
        driver=gpu.driver if gpu else "",
        arch=gpu.arch if gpu else arch,
        torch=_version("torch"),
        triton=_version("triton"),
        python=".".join(platform.python_version_tuple()[:2]),
        policy=policy(),
    )


def _describe(uuid: str) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        driver=_text(pynvml.nvmlSystemGetDriverVersion()),
        arch=f"sm_{major}{minor}",
        uuid=uuid,
        free=int(pynvml.nvmlDeviceGetMemoryInfo(handle).free),
    )


def _cuda_in_use() -> bool:
    """Whether CUDA is initialised in this process, so that it no longer reads ``CUDA_VISIBLE_DEVICES``.

    We ask the driver, because ``torch.cuda.is_available()`` initialises CUDA and PyTorch does not report it.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
