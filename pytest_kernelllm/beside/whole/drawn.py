"""Finds how the inputs of a region are drawn, so that it computes numbers of them."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from kernelllm_runtime.regions.text import Layout, Written

Band = tuple[int, int]
"""The least and the greatest number of columns by which what is true in a matrix lies right of the diagonal."""


def draw(layout: Layout, positive: bool, band: Band | None = None) -> str:
    """Returns an expression that draws an input of a region: about 0, or between 0 and 1, and integers from 1 on.

    Args:
        positive: whether floats and integers are drawn positive.
        band: what is true of booleans; None: half of them are.
    """
    shape, dtype = layout.stored, layout.dtype
    if dtype is torch.bool and band is not None:
        return f"torch.ones({shape}, dtype=torch.bool).triu({band[0]}).tril({band[1]})"
    if dtype is torch.bool:
        return f"torch.rand({shape}) < 0.5"
    if not dtype.is_floating_point:
        return f"torch.randint({'1, 3' if positive else '2'}, {shape}, dtype={dtype})"
    if positive:
        return f"torch.rand({shape}, dtype={dtype}) * 0.5 + 0.25"
    return f"torch.randn({shape}, dtype={dtype})"


def band_of(mask: torch.Tensor) -> Band | None:
    """Returns the band that all matrices of a mask are, as where attention is causal or local; None if they are not, or all true."""
    if mask.dim() < 2 or bool(mask.all()) or not bool(mask.any()):
        return None
    rows, columns = (torch.arange(size, device=mask.device) for size in mask.shape[-2:])
    right = columns - rows[:, None]
    inside = right[mask.reshape(-1, *mask.shape[-2:])[0]]
    if not inside.numel():
        return None
    band = int(inside.min()), int(inside.max())
    return band if bool((mask == ((right >= band[0]) & (right <= band[1]))).all()) else None


class Watching(Interpreter):
    """Runs a graph, and finds the bands that some of its values are."""

    def __init__(self, module: GraphModule, nodes: Set[Node]) -> None:
        """``nodes``: whose values are masks of booleans."""
        super().__init__(module)
        self.nodes = nodes
        self.bands: dict[Node, Band | None] = {}

    def run_node(self, n: Node) -> Any:
        """Runs one node."""
        value = super().run_node(n)
        if n in self.nodes:
            self.bands[n] = band_of(value)
        return value


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
