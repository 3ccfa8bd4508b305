"""Seeds PyTorch's random numbers."""

from __future__ import annotations

import torch

from kernelllm_judge.core import accelerator


def seed_torch(seed: int) -> None:
    """Does what ``torch.manual_seed`` does for the CPU and the GPU, which else spends its time on notes for other devices."""
    torch.default_generator.manual_seed(seed)
    accelerator.seed(seed)
