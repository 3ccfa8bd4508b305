"""Draws the next token from logits with one uniform random number per token.

A sample's numbers are drawn beforehand under its own seed, so the sample does not depend on the other samples
in the batch. (Rounding may differ, because libraries choose other kernels for other batch sizes.)
"""

from __future__ import annotations

import hashlib

import torch
from torch.nn import functional

from pytest_kernelllm.models.protocol import Sampling

_BLOCK = 256
"""Numbers that are summed in parallel: PyTorch's ``cumsum`` uses only one block of a GPU's threads per row."""


def uniforms(seed: int, prompt: str, index: int, count: int) -> torch.Tensor:
    """Returns the random numbers for sample ``index`` of a prompt: float32 ``[count]`` in [0, 1), on the CPU.

    A smaller ``count`` gives the first numbers of a larger one, so a larger limit continues a sample
    unchanged.
    """
    digest = hashlib.sha256(f"{seed}\0{index}\0{prompt}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
    return torch.rand(count, generator=generator, dtype=torch.float32)


def draw(logits: torch.Tensor, numbers: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Draws one token per row: temperature, top-k and top-p as in transformers; equal logits are ordered by token id.

    Args:
        logits: ``[rows, vocabulary]``, any floating dtype.
        numbers: float32 ``[rows]``, uniform in [0, 1).
        sampling: temperature, top_k and top_p.

    Returns:
        Token ids, int64 ``[rows]``.
    """
    if sampling.temperature == 0:
        return logits.argmax(-1)
    values, tokens = logits.sort(stable=True, dim=-1, descending=True)
    values = values.float()  # after the sort, which takes half the time in 16 bits
    if sampling.top_k:
        last = values[:, min(sampling.top_k, values.shape[-1]) - 1, None]
        values = values.masked_fill(values < last, float("-inf"))
    shares = (values / sampling.temperature).softmax(-1)
    reached = _running_sum(shares)
    # A token counts while the likelier ones have not reached top_p; the first always counts, even if all are NaN.
    counting = (reached - shares < sampling.top_p).sum(-1, keepdim=True).clamp(min=1)
    total = reached.gather(-1, counting - 1)
    chosen = torch.searchsorted(reached, numbers.unsqueeze(-1) * total, right=True)
    return tokens.gather(-1, torch.minimum(chosen, counting - 1)).squeeze(-1)


def _running_sum(shares: torch.Tensor) -> torch.Tensor:
    """Computes ``cumsum`` along the rows of a non-negative matrix, so that no sum is less than the one before."""
    count = shares.shape[1]
    blocks = functional.pad(shares, (0, -count % _BLOCK)).unflatten(1, (-1, _BLOCK)).cumsum(-1)
    before = functional.pad(blocks[..., -1].cumsum(-1)[:, :-1], (1, 0))
    sums: torch.Tensor = blocks + before.unsqueeze(-1)
    return sums.flatten(1)[:, :count].contiguous()
