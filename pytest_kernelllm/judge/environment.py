"""Where a verdict holds: GPU, driver, versions. Asked without importing torch."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from typing import Literal

from pytest_kernelllm.config import Settings
from pytest_kernelllm.judge.policy import POLICY_VERSION
from pytest_kernelllm.records import Environment


@dataclass(frozen=True)
class Gpu:
    """The GPU that the judge would use."""

    name: str
    driver: str
    arch: str
    uuid: str


def find_gpu() -> Gpu | None:
    """The first GPU that CUDA would show to this process, by NVML; None without a GPU or driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        first = (visible or "0").split(",")[0].strip()
        if first.isdigit():
            if int(first) >= pynvml.nvmlDeviceGetCount():
                return None
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(first))
        else:
            handle = pynvml.nvmlDeviceGetHandleByUUID(first)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        return Gpu(
            name=_text(pynvml.nvmlDeviceGetName(handle)),
            driver=_text(pynvml.nvmlSystemGetDriverVersion()),
            arch=f"sm_{major}{minor}",
            uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        )
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def find_environment(settings: Settings) -> Environment:
    """The environment that verdicts of this run hold for."""
    gpu = find_gpu() if settings.device != "cpu" else None
    device: Literal["cpu", "cuda"] = "cuda" if gpu or settings.device == "cuda" else "cpu"
    return Environment(
        device=device,
        gpu=gpu.name if gpu else "",
        driver=gpu.driver if gpu else "",
        arch=gpu.arch if gpu else settings.arch,
        torch=_version("torch"),
        triton=_version("triton"),
        python=".".join(platform.python_version_tuple()[:2]),
        policy=POLICY_VERSION,
    )


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
