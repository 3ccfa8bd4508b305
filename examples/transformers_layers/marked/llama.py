"""Llama: the normalisation, the feed-forward block and the tables of the rotary embedding."""

import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding

from kernelllm_runtime import triton_candidate

SIZES = {"batch": (1, 32), "seq": (1, 4096)}


def prompt(batch: int = 8, seq: int = 2048) -> Tensor:
    return torch.randn(batch, seq, 4096)


triton_candidate(LlamaRMSNorm, inputs=prompt, init=(4096,), dtypes=("float32", "bfloat16"), dims=SIZES)


def small_llama() -> tuple[LlamaConfig]:
    return (LlamaConfig(hidden_size=1024, intermediate_size=2816, num_attention_heads=16),)


def hidden_states(batch: int = 8, seq: int = 1024) -> Tensor:
    return torch.randn(batch, seq, 1024)


triton_candidate(LlamaMLP, inputs=hidden_states, init=small_llama, dtypes=("float32", "bfloat16"), dims=SIZES)


def positions(batch: int = 8, seq: int = 4096) -> tuple[Tensor, Tensor]:
    # The first argument only tells the layer which dtype to answer in. Positions in order would not show a
    # kernel that ignores them.
    return torch.randn(batch, seq, 8), torch.randint(8192, (batch, seq))


triton_candidate(LlamaRotaryEmbedding, inputs=positions, init=small_llama, dims=SIZES)
