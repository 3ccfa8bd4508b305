"""Recognises the bytes of a large tensor without keeping them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

CHUNK = 1 << 22
"""Elements that are summed at once: what is computed with them stays in a GPU's cache."""

INTEGERS = {1: torch.uint8, 2: torch.int16}
"""Integer dtypes by an element's bytes; larger elements count as several integers of 32 bits."""


def fingerprints(tensors: Sequence[torch.Tensor], seed: int) -> list[tuple[int, ...]]:
    """Returns numbers that other bytes of the same shape and dtype have with a probability below one in four billion.

    Each chunk's integers are summed modulo 2^64, multiplied by random numbers of 64 bits. Who does not know the seed
    cannot find two tensors whose numbers are equal more often than that. Those of all tensors, which are on one device, are
    read from it at once.
    """
    sums = [_sums(tensor, seed) for tensor in tensors]
    numbers = iter(torch.cat(sums).tolist() if sums else ())
    return [tuple(itertools.islice(numbers, len(each))) for each in sums]


def _sums(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    # A single element is contiguous whatever its strides, and `view` refuses all but 1.
    flat = tensor.detach().contiguous().squeeze().reshape(-1)
    flat = flat.view(INTEGERS.get(tensor.itemsize, torch.int32))
    generator = torch.Generator(flat.device).manual_seed(seed)
    factors = torch.empty(min(len(flat), CHUNK), dtype=torch.int64, device=flat.device)
    factors.random_(-(1 << 63), None, generator=generator)
    return torch.stack([part.to(torch.int64).mul_(factors[: len(part)]).sum() for part in flat.split(CHUNK)])
