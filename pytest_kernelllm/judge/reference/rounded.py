"""Rounds each operation's result as float32 may, in float64: what the original's own steps lose, other kernels may lose too."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from pytest_kernelllm.judge.reference.calls import scatter, to_float64
from pytest_kernelllm.judge.shared.dispatch_mode import DispatchMode


class Rounded(DispatchMode):
    """Perturbs what operations give in float64, except what float32 holds exactly, such as masks and whole numbers.

    Differences of running sums, for example, lose digits that no perturbation of inputs shows. The method is Monte Carlo
    arithmetic (Parker, 1997), with an error of its own for each element of each result.
    """

    def __init__(self, step: float, seed: int, device: torch.device) -> None:
        """Perturbs results on ``device`` by a relative ``step``, drawn with ``seed``."""
        super().__init__()
        self._step = step
        self._generator = torch.Generator(device).manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation."""
        results = func(*args, **(kwargs or {}))
        for result in () if func.is_view else tree_leaves(results):
            if isinstance(result, torch.Tensor) and result.dtype == torch.float64 and result.numel():
                self._perturb(result)
        return results

    def _perturb(self, result: torch.Tensor) -> None:
        if result.device.type == self._generator.device.type:
            kept = (result.float() == result) | ~result.isfinite()
            moved = scatter(to_float64(result), self._step, self._generator)
            result.copy_(torch.where(kept, result, moved))
