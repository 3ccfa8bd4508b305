"""Replaces RMS norms of a loaded model: the time of a step for a few rows depends on the number of its kernels.

They are recognised by what they compute, not by the model's name.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

_EPSILONS = ("variance_epsilon", "eps", "epsilon")


def replace_norms(model: nn.Module) -> int:
    """Replaces modules that compute an RMS norm by PyTorch's, which is one kernel; returns their number."""
    replaced = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if (norm := _library_norm(child)) is not None:
                setattr(module, name, norm)
                replaced += 1
    return replaced


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
