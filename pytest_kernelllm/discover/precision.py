"""Finds out which of PyTorch's settings of precision a target's original depends on.

A kernel is verified beside libraries that may use TF32 where the settings allow it, and may use it as well. Where they forbid it
later, the original is more exact than what was verified, so the domain says that they allowed it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.utils._python_dispatch import TorchDispatchMode

from kernelllm_runtime.pins.settings import CONVOLUTIONS, TF32
from pytest_kernelllm.core.tf32 import Factors, allowed
from pytest_kernelllm.discover.calls import Call


def precision_pins(module: nn.Module, make: Callable[[], Call] | None) -> dict[str, str]:
    """Returns the pins of those settings that let a float32 operation of the original use TF32, by name.

    Args:
        module: the original; calling it may change it.
        make: makes inputs of small sizes; None if even calls of these are too much work. Then, and where the call fails, whatever is
            allowed counts, but for convolutions in a module that shows none.
    """
    settings = allowed()
    ran = None if make is None else _ran(module, make, settings)
    if ran is None:
        ran = {name for name in settings if name != CONVOLUTIONS or _may_convolve(module)}
    return dict.fromkeys(sorted(ran), TF32)


def _ran(module: nn.Module, make: Callable[[], Call], settings: dict[str, Factors]) -> set[str] | None:
    """Returns the settings whose operations ran in float32; None if the call fails."""
    seen = _Float32Operations()
    try:
        call = make()
        with torch.no_grad(), seen:
            module(*call.args, **call.kwargs)
    except Exception:  # PyTorch's modes exclude each other in part
        return None
    return {name for name, factors in settings.items() if seen.operations & factors.keys()}


class _Float32Operations(TorchDispatchMode):
    """Notes the operations that run on float32 tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.operations: set[Any] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False: nothing is compiled inside, and True would import the compiler (three seconds)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and notes it."""
        if any(isinstance(each, torch.Tensor) and each.dtype == torch.float32 for each in args):
            self.operations.add(func)
        return func(*args, **(kwargs or {}))


def _may_convolve(module: nn.Module) -> bool:
    """Whether a part of a module is a convolution, or the source of one outside torch names one."""
    for part in module.modules():
        if isinstance(part, _ConvNd):
            return True
        try:
            own = type(part).__module__.partition(".")[0] != "torch"
            if own and "conv" in inspect.getsource(type(part)).lower():
                return True
        except (OSError, TypeError):  # it has no source
            return True
    return False
