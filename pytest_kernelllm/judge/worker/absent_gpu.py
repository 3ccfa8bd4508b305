"""Answers what kernels ask of a GPU in workers that have none: how many processors it has, which device is the current one."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch

PROPERTIES = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 << 30,
    L2_cache_size=50 << 20,
    warp_size=32,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_block_optin=232448,
)
"""An H100's. A right kernel computes the same on any GPU; only its grid may depend on this."""


def answer_for_gpu() -> None:
    """Replaces functions of ``torch.cuda`` that fail without a GPU, in this process."""

    def nowhere(*device: Any) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    answers = {
        "get_device_properties": lambda device=None: PROPERTIES,
        "get_device_capability": lambda device=None: (PROPERTIES.major, PROPERTIES.minor),
        "get_device_name": lambda device=None: PROPERTIES.name,
        "current_device": lambda: 0,
        "synchronize": lambda device=None: None,
        "device": nowhere,
        "device_of": nowhere,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
