"""T5: the normalisation and the gated feed-forward block of T5 1.1."""

import torch
from torch import Tensor
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5DenseGatedActDense, T5LayerNorm

from kernelllm_runtime import triton_candidate

SIZES = {"batch": (1, 64), "seq": (1, 2048)}


def hidden_states(batch: int = 32, seq: int = 512) -> Tensor:
    return torch.randn(batch, seq, 768)


triton_candidate(T5LayerNorm, inputs=hidden_states, init=(768,), dtypes=("float32", "bfloat16"), dims=SIZES)


def gated_t5() -> tuple[T5Config]:
    return (T5Config(d_model=768, d_ff=2048, feed_forward_proj="gated-gelu"),)


triton_candidate(
    T5DenseGatedActDense, inputs=hidden_states, init=gated_t5, dtypes=("float32", "bfloat16"), dims=SIZES
)
