"""Seeds PyTorch's random numbers."""

from __future__ import annotations

import torch


def seed_torch(seed: int) -> None:
    """Does what ``torch.manual_seed`` does for the CPU and CUDA, which else spends its time on notes for other devices."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
