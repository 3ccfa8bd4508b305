"""What ``torch.compile`` traces in place of an adopted class's ``forward``, with KERNELLLM_COMPILE=1.

Dynamo traces the domain check itself, in plain Python over shapes, dtypes and attributes. So its guards are
what a decision rests on, a call outside the domain is compiled anew with the original, and the kernel's
``forward`` becomes part of the graph, its Triton launches as PyTorch takes in any user's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.autograd import forward_ad

from pytest_kernelllm.runtime.ambient import HOOKS, transform
from pytest_kernelllm.runtime.methods import overridden_by, replaceable, untraceable

if TYPE_CHECKING:
    from pytest_kernelllm.runtime.dispatch import Dispatcher


OLDEST = (2, 11)
"""The oldest torch on which this was seen to work: its Dynamo traces all of the domain check, with guards on what it reads."""


def wanted() -> bool:
    """Whether kernels are to go into compiled graphs; otherwise ``torch.compile`` sees originals only."""
    return os.environ.get("KERNELLLM_COMPILE", "") not in ("", "0") and version() >= OLDEST


def version() -> tuple[int, ...]:
    """Of torch: its first two numbers."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


class Traced:
    """Decides for one adopted class while ``torch.compile`` traces it."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        """``dispatcher`` is the class's."""
        self._dispatcher = dispatcher

        def ready() -> bool:
            return dispatcher.load() and transform() is None and not torch.compiler.is_exporting()

        # Runs while tracing, but is not traced. What it reads either cannot change (the kernel's file), or Dynamo
        # guards it by itself (transforms), or sees to it that nothing else comes of it (exports).
        self._ready: Callable[[], bool] = torch.compiler.assume_constant_result(ready)
        # Likewise what classes are like; which class a module is of, Dynamo guards.
        for asked in (overridden_by, replaceable, untraceable):
            torch.compiler.assume_constant_result(asked)

    def __reduce__(self) -> tuple[Any, ...]:
        """By its dispatcher."""
        return Traced, (self._dispatcher,)

    def values(self, module: nn.Module, *values: Any) -> Sequence[Any] | None:
        """What to call the kernel with; None: the original is to run.

        Args:
            module: the module called.
            values: the arguments, in the order of ``forward``'s parameters without the variadic ones.
        """
        scope = self._dispatcher.scope
        if not self._ready() or self._dispatcher.off is not None:
            return None
        if torch._C._len_torch_function_stack() or any(map(len, HOOKS)) or forward_ad._current_level >= 0:
            return None
        if torch.is_autocast_enabled(scope.device_type) or _wants_grad(module, values):
            return None
        if any(map(_negated, _tensors(module, values))) or scope.outside(module, values) is not None:
            return None
        return values


def _tensors(module: nn.Module, values: Sequence[Any]) -> list[torch.Tensor]:
    given = [value for value in values if isinstance(value, torch.Tensor)]
    return [*module.parameters(), *module.buffers(), *given]


def _negated(tensor: torch.Tensor) -> bool:
    # Dynamo does not trace is_neg().
    return torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Negative)


def _wants_grad(module: nn.Module, values: Sequence[Any]) -> bool:
    tensors = [*module.parameters(), *(value for value in values if isinstance(value, torch.Tensor))]
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
