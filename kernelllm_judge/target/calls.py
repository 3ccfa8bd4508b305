"""Turns arguments as users write them into the arguments of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_map

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.seeding import seed_torch


@dataclass(frozen=True)
class Call:
    """The arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def map(self, change: Callable[[Any], Any]) -> Call:
        """Returns the call with ``change`` applied to every argument, and to what tuples, lists and dicts among them hold."""
        return Call(*tree_map(change, (self.args, self.kwargs)))


def as_call(value: Any) -> Call | None:
    """Makes a call from a tensor, a tuple or list, a dict, or ``(tuple, dict)``; returns None for anything else."""
    if isinstance(value, torch.Tensor):
        return Call((value,))
    if isinstance(value, dict):
        return Call((), value)
    if isinstance(value, tuple) and [type(part) for part in value] == [tuple, dict]:
        return Call(*value)
    return Call(tuple(value)) if isinstance(value, tuple | list) else None


def placed(value: Any, dtype: str | None, device: str) -> Any:
    """Detaches a tensor, moves it to ``device``, casts a floating one to ``dtype``; other values stay unchanged."""
    if not isinstance(value, torch.Tensor):
        return value
    cast = getattr(torch, dtype) if dtype and value.is_floating_point() else value.dtype
    return value.detach().to(device, cast).contiguous()


@contextmanager
def seeded(seed: int, device: str) -> Iterator[None]:
    """Seeds PyTorch's random numbers and makes ``device`` the default device, both inside the block only."""
    gpus = [torch.device(device)] if accelerator.is_gpu(device) else []
    with torch.random.fork_rng(devices=gpus, device_type=accelerator.gpu().type), torch.device(device):
        seed_torch(seed)
        yield
