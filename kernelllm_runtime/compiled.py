"""What ``torch.compile`` traces instead of an adopted class's ``forward``, with KERNELLLM_COMPILE=1.

Dynamo traces the domain check itself, which is plain Python over shapes, dtypes and attributes. So its guards
cover everything that a decision depends on, a call outside the domain is recompiled with the original, and the
kernel's ``forward`` becomes part of the graph, including its Triton launches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.autograd import forward_ad

from kernelllm_runtime.ambient import HOOKS, transform
from kernelllm_runtime.leaves import all_leaves
from kernelllm_runtime.methods import overridden_by, replaceable, untraceable

if TYPE_CHECKING:
    from kernelllm_runtime.dispatch import Dispatcher


OLDEST = (2, 11)
"""The oldest torch that this was tested on: its Dynamo traces the whole domain check, with guards on what it reads."""


def wanted() -> bool:
    """Returns whether kernels go into compiled graphs; otherwise ``torch.compile`` sees only originals."""
    return os.environ.get("KERNELLLM_COMPILE", "") not in ("", "0") and version() >= OLDEST


def version() -> tuple[int, ...]:
    """Returns the first two numbers of torch's version."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


class Traced:
    """Makes the decisions for one adopted class while ``torch.compile`` traces it."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        """Take the dispatcher of the class."""
        self._dispatcher = dispatcher

        def ready() -> bool:
            return dispatcher.load() and transform() is None and not torch.compiler.is_exporting()

        # It runs while tracing, but is not traced. What it reads either cannot change (the kernel's file), or Dynamo
        # guards it already (transforms), or it cannot vary within one trace (exports).
        self._ready: Callable[[], bool] = torch.compiler.assume_constant_result(ready)
        # The same holds for properties of classes; Dynamo guards the class of a module.
        for asked in (overridden_by, replaceable, untraceable):
            torch.compiler.assume_constant_result(asked)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the dispatcher."""
        return Traced, (self._dispatcher,)

    def values(self, module: nn.Module, *values: Any) -> Sequence[Any] | None:
        """Returns the arguments for the kernel; None if the original must run.

        Args:
            values: the arguments, in the order of ``forward``'s parameters without the variadic ones.
        """
        scope = self._dispatcher.scope
        if not self._ready() or self._dispatcher.off is not None:
            return None
        if torch._C._len_torch_function_stack() or any(map(len, HOOKS)) or forward_ad._current_level >= 0:
            return None
        if torch.get_default_dtype() is not torch.float32:
            return None
        if torch.is_autocast_enabled(scope.device_type) or _wants_grad(module, values):
            return None
        if any(type(value) is float and value == 0 for value in all_leaves(values)):
            return None  # Dynamo's guards do not tell 0.0 from -0.0
        if any(map(_negated, _tensors(module, values))) or scope.outside(module, values) is not None:
            return None
        return values


def _tensors(module: nn.Module, values: Sequence[Any]) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers(), *_given(values)]


def _given(values: Sequence[Any]) -> list[torch.Tensor]:
    return [value for value in all_leaves(values) if isinstance(value, torch.Tensor)]


def _negated(tensor: torch.Tensor) -> bool:
    # Dynamo cannot trace is_neg().
    return torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Negative)


def _wants_grad(module: nn.Module, values: Sequence[Any]) -> bool:
    tensors = [*module.parameters(), *_given(values)]
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
