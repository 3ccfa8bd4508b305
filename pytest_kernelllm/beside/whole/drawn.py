"""Finds how the inputs of a region are drawn, so that it computes numbers of them."""

from __future__ import annotations

from typing import Any

import torch

from kernelllm_runtime.regions.text import Layout, Written


def draw(layout: Layout, positive: bool) -> str:
    """Returns an expression that draws an input of a region: about 0, or between 0 and 1, and integers from 1 on."""
    shape, dtype = layout.stored, layout.dtype
    if dtype is torch.bool:
        return f"torch.rand({shape}) < 0.5"
    if not dtype.is_floating_point:
        return f"torch.randint({'1, 3' if positive else '2'}, {shape}, dtype={dtype})"
    if positive:
        return f"torch.rand({shape}, dtype={dtype}) * 0.5 + 0.25"
    return f"torch.randn({shape}, dtype={dtype})"


def positive_inputs(text: Written, device: torch.device) -> frozenset[int]:
    """Returns the numbers of the inputs without whose being positive a region fails or gives NaN, as variances and divisors."""
    needed = every = frozenset(range(len(text.inputs)))
    if _computes(text, frozenset(), device) or not _computes(text, every, device):
        return frozenset()
    for number in range(len(text.inputs)):
        if _computes(text, needed - {number}, device):
            needed -= {number}
    return needed


def _computes(text: Written, positive: frozenset[int], device: torch.device) -> bool:
    names: dict[str, Any] = {"torch": torch}
    exec(text.forward, names)
    devices = [] if device.type == "cpu" else [device]
    try:
        with torch.random.fork_rng(devices), device, torch.no_grad():
            torch.manual_seed(0)
            drawn = [eval(draw(each, number in positive), names) for number, each in enumerate(text.inputs)]
            returned = names["forward"](None, *drawn)
    except Exception:  # a divisor that is 0, or too little memory
        return False
    outputs = returned if isinstance(returned, tuple) else (returned,)
    return not any(bool(each.isnan().any()) for each in outputs)
