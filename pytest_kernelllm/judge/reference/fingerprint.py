"""Recognises the bytes of a large tensor without keeping them."""

from __future__ import annotations

import torch

CHUNK = 1 << 22
"""Elements that are summed at once: what is computed with them stays in a GPU's cache."""

INTEGERS = {1: torch.uint8, 2: torch.int16}
"""Integer dtypes by an element's bytes; larger elements count as several integers of 32 bits."""


def fingerprint(tensor: torch.Tensor, seed: int, device: str | torch.device | None = None) -> tuple[int, ...]:
    """Returns numbers that other bytes of the same shape and dtype have with a probability below one in four billion.

    Each chunk's integers are summed modulo 2^64, multiplied by random numbers of 64 bits. Who does not know the seed
    cannot find two tensors whose numbers are equal more often than that.

    Args:
        tensor: any tensor.
        seed: of the random numbers.
        device: where that is computed; None: where the tensor lies.
    """
    device = device or tensor.device
    flat = tensor.detach().contiguous().reshape(-1).view(INTEGERS.get(tensor.itemsize, torch.int32))
    generator = torch.Generator(device).manual_seed(seed)
    factors = torch.empty(min(len(flat), CHUNK), dtype=torch.int64, device=device)
    factors.random_(-(1 << 63), None, generator=generator)
    sums = [part.to(device).to(torch.int64).mul_(factors[: len(part)]).sum() for part in flat.split(CHUNK)]
    return tuple(torch.stack(sums).tolist())
