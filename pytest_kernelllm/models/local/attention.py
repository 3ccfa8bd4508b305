"""Attention of one new token per row over keys and values of different lengths, for transformers' ``AttentionInterface``.

PyTorch's attention needs a mask here, reads every row to its end and uses one block of threads per head. This
one reads only the keys that count and splits long rows over the GPU (Flash-Decoding, Dao et al. 2023). Query
heads that share keys share their loads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pytest_kernelllm.generate.protocol import GenerateError

NAME = "kernelllm_slots"
"""The name under which transformers finds the attention."""

SPLIT = 256
"""Number of keys that one program reads."""

_OTHER_KINDS = ("softcap", "s_aux", "sliding_window")
"""Arguments that would change the result and are not supported here."""


def register() -> str:
    """Registers the attention with transformers and returns its name."""
    AttentionInterface.register(NAME, slots_attention)
    return NAME


def slots_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    lengths: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Computes attention for a prompt (without ``lengths``: causal, by PyTorch) or for one new token of each row.

    Args:
        module: the attention layer.
        query: ``[rows, heads, tokens, width]``.
        key: ``[rows, key heads, length, width]``.
        value: like ``key``.
        attention_mask: None, because nothing is padded.
        scaling: the factor of the scores; by default one over the square root of the width.
        lengths: int64 ``[rows]``, how many keys of each row count; ``tokens`` is then 1.
        **kwargs: other arguments from transformers.

    Returns:
        The output ``[rows, tokens, heads, width]``, and None for the weights.
    """
    other = [name for name in _OTHER_KINDS if kwargs.get(name) is not None]
    if other or (lengths is None and query.shape[2] != key.shape[2]):
        how = f"with {', '.join(other)}" if other else "in its own way"
        raise GenerateError(
            f"{type(module).__name__} computes attention {how}, which `local` does not support: serve the model (vLLM, TGI, "
            "`transformers serve`) and set `endpoint`."
        )
    if lengths is None:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return output, None
    rows, heads, _, width = query.shape
    # Heads that share keys become the rows of one small matrix.
    packed = query.reshape(rows, key.shape[1], heads // key.shape[1], width)
    scale = width**-0.5 if scaling is None else scaling
    attend = _split if query.is_cuda and _fits_tensor_cores(width) else _masked
    mixed = attend(packed, key, value, lengths, scale)
    return mixed.reshape(rows, 1, heads, width), None


def _fits_tensor_cores(width: int) -> bool:
    return width >= 16 and width & (width - 1) == 0


def _masked(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: torch.Tensor, scale: float
) -> torch.Tensor:
    counts = torch.arange(key.shape[2], device=key.device) < lengths[:, None, None, None]
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=counts, scale=scale)


def _split(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: torch.Tensor, scale: float
) -> torch.Tensor:
    from pytest_kernelllm.models.local.split_attention import split_attention

    # Triton launches on the current device, which need not be the model's.
    with torch.cuda.device_of(query):
        return split_attention(query, key, value, lengths, scale, SPLIT)
