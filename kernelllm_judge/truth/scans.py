"""Computes running sums and products in other orders, as kernels do: each order loses other digits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from kernelllm_judge.core.dispatch_mode import DispatchMode

aten = torch.ops.aten

SCANS: Mapping[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = MappingProxyType(
    {aten.cumsum.default: torch.add, aten.cumprod.default: torch.mul}
)
"""The operations, and what combines two of their terms."""

BLOCKS = (1024, 32, 1)
"""Into how many blocks at most a scan is cut. Up to 1,024 numbers are added one after the other then."""


class Scanned(DispatchMode):
    """Scans float32 numbers in blocks, each as a tree (Kogge and Stone, 1973), and adds what came before to each block."""

    def __init__(self, blocks: int) -> None:
        """``blocks``: how many there are at most."""
        super().__init__()
        self.used = False
        """Whether there was anything to scan."""
        self._blocks = blocks

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation."""
        dtype = (kwargs or {}).get("dtype") or args[0].dtype if func in SCANS else None
        if dtype != torch.float32 or not args[0].dim() or not args[0].numel():
            return func(*args, **(kwargs or {}))
        self.used = True
        x, dim = args[0].float(), args[1]
        scanned: list[torch.Tensor] = []
        for block in x.chunk(self._blocks, dim):
            here = _in_a_tree(block, dim, SCANS[func])
            if scanned:
                here = SCANS[func](scanned[-1].narrow(dim, -1, 1), here)
            scanned.append(here)
        return torch.cat(scanned, dim).contiguous()  # as PyTorch's own results are


def _in_a_tree(
    x: torch.Tensor, dim: int, combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    distance, length = 1, x.shape[dim]
    while distance < length:
        before, rest = x.narrow(dim, 0, length - distance), x.narrow(dim, distance, length - distance)
        x = torch.cat([x.narrow(dim, 0, distance), combine(before, rest)], dim)
        distance *= 2
    return x
