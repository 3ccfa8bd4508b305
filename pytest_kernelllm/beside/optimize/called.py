"""Finds which kernels would run where the example calls their modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from kernelllm_runtime.adopted import DISPATCHER
from kernelllm_runtime.ambient import ambient_reason, autocast_reason
from kernelllm_runtime.compiled import wanted
from kernelllm_runtime.dispatch import Dispatcher
from kernelllm_runtime.instance import Swap
from kernelllm_runtime.methods import untraceable
from kernelllm_runtime.scope import device_type
from kernelllm_runtime.targets import is_pin


def reasons(swaps: Sequence[Swap], example: Callable[[], object], *, compiled: bool) -> dict[str, str | None]:
    """Runs the example once, and returns why a kernel runs none of the calls of its module, by path; None if it runs some.

    Modules that the example does not call are left out. ``compiled``: whether the model will run under ``torch.compile``.
    """
    found: dict[str, str | None] = {}

    def hook(swap: Swap) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        dispatcher = getattr(swap.after.forward, DISPATCHER)

        def ask(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if found.get(swap.path, "") is not None:
                around = ambient_reason() or autocast_reason(device_type())
                why = (
                    around
                    or dispatcher.reason(module, args, kwargs)
                    or (_unseen(dispatcher) if compiled else None)
                )
                found[swap.path] = why and (found.get(swap.path) or why)

        return ask

    handles = [swap.module.register_forward_pre_hook(hook(swap), with_kwargs=True) for swap in swaps]
    try:
        with torch.no_grad():
            example()
    finally:
        for handle in handles:
            handle.remove()
    return found


def _unseen(dispatcher: Dispatcher) -> str | None:
    """Returns why ``torch.compile`` sees the original in the kernel's place; None if it sees the kernel."""
    if not wanted():
        return "torch.compile sees the original unless KERNELLLM_COMPILE=1 is set, with torch 2.11 or newer"
    names = {name for domain in dispatcher.scope.domains for name in domain.attributes if is_pin(name)}
    if names - {"value:__class__"}:
        return "torch.compile sees the original, as it cannot compare all values that the original reads"
    if name := untraceable(dispatcher.scope.cls):
        return f"torch.compile sees the original, as it cannot tell whether `{name}` was replaced"
    return None
