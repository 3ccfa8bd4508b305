"""Fuses operations in a loaded model: the time of a step for a few rows depends on the number of its kernels.

Operations are recognised by what they compute, not by the model's name; others stay as they are.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

ROTATE = "apply_rotary_pos_emb"
"""The name of the function with which transformers' attention layers rotate queries and keys."""

_EPSILONS = ("variance_epsilon", "eps", "epsilon")


def fuse(model: nn.Module) -> None:
    """Applies both fusions to a model in eval mode on one GPU that is not trained any more."""
    replace_norms(model)
    rotate_in_one(model)


def replace_norms(model: nn.Module) -> int:
    """Replaces modules that compute an RMS norm by PyTorch's, which is one kernel; returns their number."""
    replaced = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if (norm := _library_norm(child)) is not None:
                setattr(module, name, norm)
                replaced += 1
    return replaced


def rotate_in_one(model: nn.Module) -> int:
    """Makes attention layers rotate queries and keys with one kernel; returns the number of layers.

    A layer gets the ``forward`` of its class with another function under the name ``ROTATE``; transformers'
    modules stay unchanged.
    """
    made: dict[type, Callable[..., Any] | None] = {}
    layers = [module for module in model.modules() if "forward" not in vars(module)]
    for layer in layers:
        kind = type(layer)
        if kind not in made:
            made[kind] = _with_one_rotation(kind.forward)
        if (forward := made[kind]) is not None:
            layer.forward = types.MethodType(forward, layer)
    return sum(made[type(layer)] is not None for layer in layers)


def _library_norm(module: nn.Module) -> nn.RMSNorm | None:
    weight = getattr(module, "weight", None)
    epsilon = next((value for name in _EPSILONS if (value := getattr(module, name, None)) is not None), None)
    if not isinstance(weight, torch.Tensor) or weight.dim() != 1 or not isinstance(epsilon, float):
        return None
    if "norm" not in type(module).__name__.lower() or type(module).__module__.startswith("torch."):
        return None
    norm = nn.RMSNorm(weight.shape[0], epsilon, device="meta", dtype=weight.dtype)
    norm.weight = weight  # type: ignore[assignment]  # a parameter, as isinstance cannot tell mypy
    return norm if _alike(module, norm) else None


@torch.no_grad()
def _alike(module: nn.Module, norm: nn.RMSNorm) -> bool:
    """Whether two norms compute the same, on inputs that show a different epsilon or a weight with one added."""
    pair = [copy.deepcopy(each).to(torch.float32) for each in (module, norm)]
    device, width = norm.weight.device, norm.weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(width, generator=generator).to(device)
    scales = torch.tensor([[1.0], [float(norm.eps or 0.0) ** 0.5]])
    x = (torch.randn(2, width, generator=generator) * scales).to(device)
    for each in pair:
        each.weight.copy_(weight)  # type: ignore[operator]  # both have a tensor there
    found, expected = (each(x) for each in pair)
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


def _with_one_rotation(forward: Callable[..., Any]) -> Callable[..., Any] | None:
    if not isinstance(forward, types.FunctionType) or ROTATE not in forward.__code__.co_names:
        return None
    original = forward.__globals__.get(ROTATE)
    if original is None or not _rotates_halves(original):
        return None

    @functools.wraps(original)
    def rotated(
        q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        places = (q.shape[0], *q.shape[2:])
        if args or kwargs or not q.is_cuda or cos.shape != places or q.stride(-1) != 1 or k.stride(-1) != 1:
            return original(q, k, cos, sin, *args, **kwargs)
        from pytest_kernelllm.models.local.step_kernels import rotate

        with torch.cuda.device_of(q):  # Triton launches on the current device
            return rotate(q, k, cos, sin)

    names = forward.__globals__ | {ROTATE: rotated}
    made = types.FunctionType(
        forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
    )
    made.__kwdefaults__ = forward.__kwdefaults__
    return functools.wraps(forward)(made)


def _rotates_halves(function: Callable[..., Any]) -> bool:
    """Whether a function computes the same as ``step_kernels.rotate`` when it is called as in transformers."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, heads, 3, 8, generator=generator) for heads in (4, 2))
    cos, sin = torch.randn(2, 2, 3, 8, generator=generator)
    try:
        found = function(q, k, cos, sin)
    except TypeError:  # a function of the same name with other parameters
        return False
    expected = (x * cos[:, None] + torch.cat((-x[..., 4:], x[..., :4]), -1) * sin[:, None] for x in (q, k))
    return len(found) == 2 and all(map(functools.partial(torch.allclose, atol=1e-6), found, expected))
