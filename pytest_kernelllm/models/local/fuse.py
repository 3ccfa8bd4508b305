"""Fewer kernels for the same arithmetic in a loaded model: a step for a few rows takes as long as its kernels are many.

Everything is recognised by what it computes, not by the model's name, and what is not recognised stays as it is.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Projections of one input, as transformers' models name them."""

ROTATE = "apply_rotary_pos_emb"
"""The function that transformers' attention layers rotate queries and keys with, by this name in their modules."""

_EPSILONS = ("variance_epsilon", "eps", "epsilon")


def fuse(model: nn.Module) -> None:
    """All of the following; for a model that lies on one GPU, in eval mode, and is not trained any more."""
    merge_projections(model)
    replace_norms(model)
    rotate_in_one(model)


def merge_projections(model: nn.Module) -> int:
    """Let linear layers that read the same input share one matrix multiplication; how many layers share now.

    Their weights become one; a model takes no more memory than before.
    """
    merged = 0
    for module in list(model.modules()):
        for names in TOGETHER:
            linears = _mergeable([getattr(module, name, None) for name in names])
            if linears:
                together = Together(linears)
                for index, name in enumerate(names):
                    setattr(module, name, Part(together, index))
                merged += len(names)
    return merged


def replace_norms(model: nn.Module) -> int:
    """Put PyTorch's own RMS norm, one kernel, in the place of modules that compute the same; how many."""
    replaced = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if (norm := _library_norm(child)) is not None:
                setattr(module, name, norm)
                replaced += 1
    return replaced


def rotate_in_one(model: nn.Module) -> int:
    """Let attention layers rotate queries and keys by one kernel; how many layers do now.

    A layer gets the ``forward`` of its class with another function under the name ``ROTATE``; transformers' own modules
    stay as they are.
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


class Together(nn.Module):
    """Several linear layers as one; the outputs for an input are kept until the last of them is asked for."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        """The layers have one input width, dtype and device, and all a bias or none."""
        super().__init__()
        self.sizes = [linear.out_features for linear in linears]
        weights = [linear.weight.detach() for linear in linears]
        biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
        self.weight = nn.Parameter(torch.cat(weights), requires_grad=False)
        self.bias = nn.Parameter(torch.cat(biases), requires_grad=False) if biases else None
        self._input: torch.Tensor | None = None
        self._outputs: tuple[torch.Tensor, ...] = ()

    def part(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """What layer ``index`` makes of ``x``."""
        if x is not self._input:
            self._input = x
            self._outputs = nn.functional.linear(x, self.weight, self.bias).split(self.sizes, -1)
        output = self._outputs[index]
        if index == len(self.sizes) - 1:
            self._input, self._outputs = None, ()
        return output


class Part(nn.Module):
    """One of the layers in a ``Together``, in the place that the layer had."""

    def __init__(self, together: Together, index: int) -> None:
        """``index``: which of them."""
        super().__init__()
        self.together, self._index = together, index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the layer alone would compute."""
        return self.together.part(self._index, x)


def _mergeable(candidates: Sequence[object]) -> list[nn.Linear]:
    """The candidates, if they can be one; else none."""
    # Not subclasses, which quantise, nor layers with hooks, which expect to be called.
    linears = [x for x in candidates if type(x) is nn.Linear and not x._forward_hooks]
    linears = [x for x in linears if not hasattr(x, "_hf_hook")]
    kinds = {(x.in_features, x.weight.dtype, x.weight.device, x.bias is None) for x in linears}
    return linears if len(linears) == len(candidates) and len(kinds) == 1 else []


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
    """Whether two norms compute the same, for weights and inputs that tell a missing epsilon or an added one apart."""
    pair = [copy.deepcopy(each).to(torch.float32) for each in (module, norm)]
    device, width = norm.weight.device, norm.weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(width, generator=generator).to(device)
    scales = torch.tensor([[1.0], [float(norm.eps or 0.0) ** 0.5]])
    x = (torch.randn(2, width, generator=generator) * scales).to(device)
    for each in pair:
        each.weight.copy_(weight)  # type: ignore[operator]  # both have a tensor there
    found, wanted = (each(x) for each in pair)
    return found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-5, atol=1e-6)


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

        with torch.cuda.device_of(q):  # Triton launches on the current one
            return rotate(q, k, cos, sin)

    names = forward.__globals__ | {ROTATE: rotated}
    made = types.FunctionType(
        forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
    )
    made.__kwdefaults__ = forward.__kwdefaults__
    return functools.wraps(forward)(made)


def _rotates_halves(function: Callable[..., Any]) -> bool:
    """Whether a function called as transformers calls it computes what ``step_kernels.rotate`` does."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, heads, 3, 8, generator=generator) for heads in (4, 2))
    cos, sin = torch.randn(2, 2, 3, 8, generator=generator)
    try:
        found = function(q, k, cos, sin)
    except TypeError:  # another function of that name, which takes other arguments
        return False
    wanted = (x * cos[:, None] + torch.cat((-x[..., 4:], x[..., :4]), -1) * sin[:, None] for x in (q, k))
    return len(found) == 2 and all(map(functools.partial(torch.allclose, atol=1e-6), found, wanted))
