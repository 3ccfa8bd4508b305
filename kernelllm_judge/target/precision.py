"""Finds out which of PyTorch's settings of precision a target's original depends on.

A kernel is verified beside libraries that may use TF32 where the settings allow it, and may use it as well. Where they forbid it
later, the original is more exact than what was verified, so the domain says that they allowed it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core.dispatch_mode import DispatchMode
from kernelllm_judge.core.tf32 import allowed
from kernelllm_judge.target.calls import Call, seeded
from kernelllm_judge.target.trial import requiring
from kernelllm_runtime.pins.settings import TF32


def precision_pins(
    module: nn.Module,
    make: Callable[[], Call] | None,
    watched: Callable[[], AbstractContextManager[None]],
    *,
    grad: bool,
) -> dict[str, str]:
    """Returns the pins of those settings that let a float32 operation of the original use TF32, by name.

    Whatever is allowed counts where the original does not show what it computes.

    Args:
        module: the original; calling it may change it.
        make: makes inputs of small sizes; None if even calls of these are too much work.
        watched: gives the context of the call, and only of it.
        grad: whether kernels compute gradients, too.
    """
    settings = allowed()
    ran = _ran(module, make, watched, grad) if settings and make is not None else None
    return {name: TF32 for name, factors in settings.items() if ran is None or ran & factors.keys()}


def _ran(
    module: nn.Module,
    make: Callable[[], Call],
    watched: Callable[[], AbstractContextManager[None]],
    grad: bool,
) -> set[Any] | None:
    """Returns the operations that run on float32 tensors; None if the call fails."""
    seen = _Float32Operations()
    try:
        call = make()
        with seeded(0, "cpu"), seen, watched():
            if grad:
                _both_passes(module, call)
            else:
                with torch.no_grad():
                    module(*call.args, **call.kwargs)
    except (Exception, SystemExit):  # some code cannot run where its operations are seen
        return None
    return seen.operations


def _both_passes(module: nn.Module, call: Call) -> None:
    before = {each: each.requires_grad for each in module.parameters()}
    call = call.map(requiring)
    try:
        for each in before:
            each.requires_grad_(each.is_floating_point())
        with torch.enable_grad():
            outputs = _differentiable(module(*call.args, **call.kwargs))
            wanted = _differentiable((call.args, call.kwargs, list(before)))
            torch.autograd.grad(
                outputs, wanted, [torch.ones_like(each) for each in outputs], allow_unused=True
            )
    finally:
        for each, requires_grad in before.items():
            each.requires_grad_(requires_grad)


def _differentiable(values: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor) and each.requires_grad]


class _Float32Operations(DispatchMode):
    """Notes the operations that run on float32 tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and records it."""
        if any(isinstance(each, torch.Tensor) and each.dtype == torch.float32 for each in args):
            self.operations.add(func)
        return func(*args, **(kwargs or {}))
