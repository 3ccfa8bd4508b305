"""Finds buffers of 8-bit integers that hold codes of quantised weights: they vary like weights, and are not pinned."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kernelllm_judge.target.calls import Call, seeded

FEWEST = 9
"""Different values from which on integers count as codes. Masks and flags have fewer, and mean something else."""


def redraw_codes(module: nn.Module, names: Collection[str], seed: int) -> None:
    """Gives the buffers of 8-bit integers with these names any values, in place."""
    for name, buffer in module.named_buffers():
        if name in names and _has_eight_bits(buffer):
            generator = torch.Generator(buffer.device).manual_seed(seed)
            limits = torch.iinfo(buffer.dtype)
            buffer.data = torch.randint(
                limits.min,
                limits.max + 1,
                buffer.shape,
                generator=generator,
                dtype=buffer.dtype,
                device=buffer.device,
            )


def possible_codes(module: nn.Module) -> frozenset[str]:
    """Returns the names of the buffers that may hold codes, by their values."""
    found = (
        name
        for name, each in module.named_buffers()
        if _has_eight_bits(each) and len(each.unique()) >= FEWEST
    )
    return frozenset(found)


def codes_of(module: nn.Module, names: frozenset[str], call: Call) -> frozenset[str]:
    """Returns the names if these buffers hold codes: with any values in them, the original returns finite outputs.

    An index into a table is none, because the original fails with most values.

    Args:
        module: a built module on the CPU; it is changed.
        names: those that are possible.
        call: what it is called with.
    """
    for seed in range(2):
        redraw_codes(module, names, seed)
        try:
            with torch.no_grad(), seeded(0, "cpu"):
                leaves = tree_leaves(module(*call.args, **call.kwargs))
        except (Exception, SystemExit):  # the user's code may raise anything
            return frozenset()
        floats = [each for each in leaves if isinstance(each, torch.Tensor) and each.is_floating_point()]
        if not all(bool(each.double().isfinite().all()) for each in floats):
            return frozenset()
    return names


def _has_eight_bits(tensor: torch.Tensor) -> bool:
    return tensor.dtype in (torch.int8, torch.uint8)
