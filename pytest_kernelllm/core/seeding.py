"""Seeds PyTorch's random numbers."""

from __future__ import annotations

import torch


def seed_torch(seed: int) -> None:
    """Does what ``torch.manual_seed`` does, which without a GPU spends its time on notes for later about GPUs."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
