"""Determines the environment in which a model in memory runs kernels."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from kernelllm_judge.core.records import Environment
from kernelllm_judge.environment import find_environment, find_gpus
from pytest_kernelllm.core.applies import interpreting


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
