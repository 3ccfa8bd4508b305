"""What is right: the original's own outputs, and the same computation in float64. Only ever in the judge's process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from pytest_kernelllm.judge.shared.structure import flatten

Change = Callable[[torch.Tensor], torch.Tensor]

LOW_PRECISION = frozenset({torch.float32, torch.float16, torch.bfloat16})

_NOISE = 65_537
"""Random numbers drawn for one tensor; a larger one repeats them, in no step with rows of ordinary widths."""


class Float64Mode(TorchDispatchMode):
    """Runs operations in float64 even where a module asks for a lower precision by name (``x.float()``)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled inside, and the precaution would import the whole compiler, some three seconds."""
        return False

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


def copied(module: nn.Module, change: Change, change_buffer: Change | None = None) -> nn.Module:
    """A copy of ``module`` with its parameters and buffers changed; what was one tensor stays one.

    Args:
        module: kept as it is.
        change: makes a parameter of the copy; it may return the very tensor.
        change_buffer: the same for buffers, where they differ.
    """
    changed: dict[int, Any] = {}
    for parameter in module.parameters():
        changed[id(parameter)] = nn.Parameter(change(parameter.detach()), parameter.requires_grad)
    for buffer in module.buffers():
        changed[id(buffer)] = (change_buffer or change)(buffer.detach())
    return copy.deepcopy(module, changed)


def perturbed(module: nn.Module, seed: int) -> nn.Module:
    """A copy with parameters and buffers off their initial values, so that a kernel that ignores them is wrong.

    Values keep their meaning: what is nowhere negative stays so (variances, frequencies), integers stay.
    """
    tensors = [*module.parameters(), *module.buffers()]
    generator = torch.Generator(tensors[0].device if tensors else "cpu").manual_seed(seed)

    def perturb(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.numel() == 0:
            return tensor.clone()
        if bool((tensor == 0).all()):
            return 0.3 * _noise(tensor, torch.randn, generator)
        if bool((tensor >= 0).all()):
            return tensor * (0.6 + 0.8 * _noise(tensor, torch.rand, generator))
        spread = tensor.float().std(unbiased=False).to(tensor)
        return tensor + 0.1 * spread * _noise(tensor, torch.randn, generator)

    return copied(module, perturb)


def to_float64(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in float64; of integers, as they are."""
    dtype = torch.float64 if tensor.is_floating_point() else tensor.dtype
    return tensor.to(dtype, copy=True, memory_format=torch.contiguous_format)


def perturbation(step: float, seed: int, device: torch.device) -> Change:
    """What raises floating tensors to float64 and moves each element at random, by about ``step`` relative to it."""
    generator = torch.Generator(device).manual_seed(seed)

    def perturb(tensor: torch.Tensor) -> torch.Tensor:
        wide = to_float64(tensor)
        if not tensor.is_floating_point() or not tensor.numel():
            return wide
        count = min(wide.numel(), _NOISE)
        drawn = 2 * torch.rand(count, generator=generator, device=wide.device, dtype=torch.float64) - 1
        # Between half and one and a half steps, up or down: no two perturbations cancel each other exactly.
        factors = 1 + step * (drawn + 0.5 * drawn.sign())
        flat = wide.view(-1)
        whole = flat.numel() // count * count
        flat[:whole].view(-1, count).mul_(factors)
        flat[whole:].mul_(factors[: flat.numel() - whole])
        return wide

    return perturb


def call_original(module: nn.Module, arguments: dict[str, Any], seed: int = 0) -> Any:
    """The module's own outputs, with PyTorch's generators at ``seed``. Module and arguments are kept as they are."""
    fresh = copied(module, lambda tensor: tensor, torch.clone)
    inputs = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    cuda = [t.device for t in arguments.values() if isinstance(t, torch.Tensor) and t.is_cuda][:1]
    with torch.no_grad(), torch.random.fork_rng(devices=cuda):
        torch.manual_seed(seed)
        return fresh(**inputs)


def run_original(module: nn.Module, arguments: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Structure and leaves of ``call_original``."""
    return flatten(call_original(module, arguments))


def run_in_float64(module: nn.Module, arguments: dict[str, Any], change: Change = to_float64) -> list[Any]:
    """Leaves of the outputs when everything is computed in float64.

    Args:
        module: of float64; ``copied(module, to_float64)`` makes one. Kept as it is.
        arguments: kept as they are.
        change: makes float64 of an argument.
    """
    exact = copied(module, lambda tensor: tensor, torch.clone)
    inputs = {k: change(v) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    with torch.no_grad(), Float64Mode():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return flatten(exact(**inputs))[1]


def run_in_half(module: nn.Module, arguments: dict[str, Any]) -> list[Any] | None:
    """Leaves of the outputs at half precision; None where nothing is float32, or the module cannot run so."""
    tensors = [*module.parameters(), *module.buffers(), *arguments.values()]
    if not any(isinstance(t, torch.Tensor) and t.dtype == torch.float32 for t in tensors):
        return None

    def halve(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(torch.bfloat16) if tensor.dtype == torch.float32 else tensor.clone()

    half = copied(module, halve)
    halved = {k: halve(v) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    try:
        with torch.no_grad():
            return flatten(half(**halved))[1]
    except (
        Exception
    ):  # e.g. an operation without a half-precision version; the user's code may raise anything
        return None


def _noise(like: torch.Tensor, kind: Callable[..., torch.Tensor], generator: torch.Generator) -> torch.Tensor:
    """Random numbers in the shape, dtype and place of ``like``."""
    count = like.numel()
    drawn = kind(min(count, _NOISE), generator=generator, device=like.device).to(like.dtype)
    return drawn.repeat(-(-count // _NOISE))[:count].reshape(like.shape) if count else like
