"""What is right: the original's own outputs, and the same computation in float64. Only ever in the judge's process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from pytest_kernelllm.judge.structure import flatten

LOW_PRECISION = frozenset({torch.float32, torch.float16, torch.bfloat16})


class Float64Mode(TorchDispatchMode):
    """Runs operations in float64 even where a module asks for a lower precision by name (``x.float()``)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace every floating dtype argument by float64."""

        def raise_dtype(value: Any) -> Any:
            return torch.float64 if value in LOW_PRECISION else value

        def raise_tensor(value: torch.Tensor) -> torch.Tensor:
            return value.double() if value.dtype in LOW_PRECISION else value

        args = tree_map_only(torch.dtype, raise_dtype, args)
        kwargs = tree_map_only(torch.dtype, raise_dtype, kwargs or {})
        # Constants made before the mode was entered are still low.
        args, kwargs = tree_map_only(torch.Tensor, raise_tensor, (args, kwargs))
        return func(*args, **kwargs)


def shake(module: torch.nn.Module, seed: int) -> None:
    """Move parameters and buffers off their initial values, in place, so that a kernel that ignores them is wrong.

    Values keep their meaning: what is nowhere negative stays so (variances, frequencies), integers stay.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(tensor: torch.Tensor, kind: Callable[..., torch.Tensor]) -> torch.Tensor:
        return kind(tensor.shape, generator=generator).to(tensor)

    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if not tensor.is_floating_point() or tensor.numel() == 0:
                continue
            if bool((tensor == 0).all()):
                tensor.copy_(0.3 * noise(tensor, torch.randn))
            elif bool((tensor >= 0).all()):
                tensor.mul_(0.6 + 0.8 * noise(tensor, torch.rand))
            else:
                tensor.add_(0.1 * tensor.float().std(unbiased=False).to(tensor) * noise(tensor, torch.randn))


def in_float64(value: Any) -> Any:
    """Floating tensors of a nest in float64, others unchanged."""
    return tree_map_only(torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, value)


def run_original(module: torch.nn.Module, arguments: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Structure and leaves of the module's own outputs."""
    with torch.no_grad():
        return flatten(module(**copy.deepcopy(arguments)))


def run_in_float64(module: torch.nn.Module, arguments: dict[str, Any]) -> list[Any]:
    """Leaves of the outputs when everything is computed in float64."""
    exact = copy.deepcopy(module).double()
    raised = in_float64(copy.deepcopy(arguments))
    with torch.no_grad(), Float64Mode():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return flatten(exact(**raised))[1]


def run_in_half(module: torch.nn.Module, arguments: dict[str, Any]) -> list[Any] | None:
    """Leaves of the outputs at half precision, for float32 modules; None where the module cannot run so."""

    def halve(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(torch.bfloat16) if tensor.dtype == torch.float32 else tensor

    half = copy.deepcopy(module).to(torch.bfloat16)
    halved = tree_map_only(torch.Tensor, halve, copy.deepcopy(arguments))
    try:
        with torch.no_grad():
            leaves = flatten(half(**halved))[1]
    except (RuntimeError, TypeError, ValueError):  # e.g. an operation without a half-precision version
        return None
    return leaves
