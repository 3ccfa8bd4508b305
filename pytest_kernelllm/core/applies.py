"""Determines the environment in which a model in memory runs kernels, and which verdicts apply to it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from kernelllm_judge.core.records import Environment
from kernelllm_judge.environment import find_environment, find_gpus

if TYPE_CHECKING:
    from torch import nn


def interpreting() -> bool:
    """Returns whether kernels run on the CPU, in Triton's interpreter."""
    return os.environ.get("KERNELLLM_INTERPRET") == os.environ.get("TRITON_INTERPRET") == "1"


def environment_of(model: nn.Module) -> Environment | None:
    """Returns the environment of the GPU with the model's first CUDA tensor, or of the first GPU; None without a GPU.

    With ``KERNELLLM_INTERPRET=1`` and ``TRITON_INTERPRET=1`` it is that of Triton's interpreter.
    """
    on_cpu = find_environment("cpu")
    if interpreting():
        return on_cpu
    gpus = find_gpus()
    tensors = (*model.parameters(), *model.buffers())
    index = next((tensor.device.index for tensor in tensors if tensor.is_cuda), None) or 0
    if index >= len(gpus):
        return None
    gpu = gpus[index]
    return replace(on_cpu, device="cuda", gpu=gpu.name, driver=gpu.driver, arch=gpu.arch)


def same(verdict: Environment, here: Environment) -> bool:
    """Returns whether a verdict applies here: the GPU, torch, triton and the judge's rules are the same.

    Python, the driver and a project's own thresholds may differ. In the interpreter the architecture does not matter:
    kernels were only compiled for it.
    """
    if _rules(verdict) != _rules(here):
        return False
    counts = ("device", "torch", "triton", *(("gpu", "arch") if here.device == "cuda" else ()))
    return all(getattr(verdict, name) == getattr(here, name) for name in counts)


def difference(verdict: Environment, here: Environment) -> str:
    """Describes the first difference, as "on A, not B"."""
    if _place(verdict) != _place(here):
        return f"on {_place(verdict)}, not {_place(here)}"
    for name in ("torch", "triton"):
        if getattr(verdict, name) != getattr(here, name):
            return (
                f"with {name} {getattr(verdict, name) or 'unknown'}, not {getattr(here, name) or 'without'}"
            )
    return f"under the judge's rules {_rules(verdict)}, not {_rules(here)}"


def _place(environment: Environment) -> str:
    return f"{environment.gpu} ({environment.arch})" if environment.gpu else "Triton's interpreter"


def _rules(environment: Environment) -> str:
    """The version of the judge's rules, without a project's own changes (``2 1.1x``, ``2+0.01ab…``)."""
    found = re.match(r"[^ +]*", environment.policy)
    return found[0] if found else ""
