"""What surrounds a call in its process: PyTorch's modes and random numbers, which a kernel neither changes nor needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kernelllm_judge.core import accelerator


def present() -> Mapping[str, Any]:
    """Returns PyTorch's modes and the state of its random numbers, by their names in words."""
    return {
        "whether gradients are enabled": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": tuple(torch.is_autocast_enabled(device) for device in ("cpu", accelerator.gpu().type)),
        "the default dtype": torch.get_default_dtype(),
        "the default device": torch.get_default_device(),
        "the current GPU": torch.accelerator.current_device_index() if accelerator.in_use() else None,
        "the state of PyTorch's random numbers": (
            torch.get_rng_state().numpy().tobytes(),
            accelerator.random_state(),
        ),
    }


def contents(value: Any) -> Any:
    """Returns what an argument holds, as far as a call may not change it: plain values, and which tensors."""
    match value:
        case dict():
            return {repr(key): contents(part) for key, part in value.items()}
        case list() | tuple():
            return [contents(part) for part in value]
        case torch.Tensor():
            return id(value)
    return repr(value)


def changed(before: Mapping[str, Any]) -> list[str]:
    """Returns the names of what is no longer as in ``before``."""
    return [name for name, value in present().items() if value != before[name]]
