"""What ``training`` has kernels judged for: a copy of this file marks them, with ``sizes.json`` beside it."""

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
    apply_rotary_pos_emb,
)

from kernelllm_runtime import triton_candidate

SIZES = json.loads(Path(__file__).with_name("sizes.json").read_text())
TOKENS = SIZES["tokens"]
CONFIG = Qwen3Config(attn_implementation="sdpa", **SIZES["config"])
HEADS, KV_HEADS = CONFIG.num_attention_heads, CONFIG.num_key_value_heads

DIMS = {"tokens": (1, TOKENS)}
COMMON: Any = {"dtypes": (SIZES["dtype"],), "backward": True, "training": True}


def hidden_states(tokens: int = TOKENS) -> Tensor:
    return torch.randn(1, tokens, CONFIG.hidden_size)


def projections(tokens: int = TOKENS) -> tuple[Tensor, Tensor]:
    return torch.randn(1, tokens, CONFIG.intermediate_size), torch.randn(1, tokens, CONFIG.intermediate_size)


def heads(tokens: int = TOKENS, heads: int = HEADS) -> Tensor:
    return torch.randn(1, tokens, heads, CONFIG.head_dim)


def queries_and_keys(tokens: int = TOKENS) -> tuple[Tensor, Tensor]:
    return heads(tokens), heads(tokens, KV_HEADS)


def predictions(tokens: int = TOKENS) -> tuple[Tensor, Tensor]:
    labels = torch.randint(CONFIG.vocab_size, (tokens,))
    labels[-1] = -100  # what follows the last token is not known
    return torch.randn(tokens, CONFIG.vocab_size), labels


triton_candidate(
    Qwen3RMSNorm,
    cases={
        "hidden": {"init": (CONFIG.hidden_size,), "inputs": hidden_states, "dims": DIMS},
        "head": {"init": (CONFIG.head_dim,), "inputs": heads, "dims": {**DIMS, "heads": (1, HEADS)}},
    },
    **COMMON,
)


@triton_candidate(inputs=projections, dims=DIMS, **COMMON)
class SwiGLU(nn.Module):
    """Inputs and output: ``(1, tokens, width)``."""

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate) * up


@triton_candidate(init=lambda: (CONFIG, TOKENS), inputs=queries_and_keys, dims=DIMS, **COMMON)
class Rotary(nn.Module):
    """Inputs and outputs: ``(1, tokens, heads, head_dim)``. Cosines and sines are buffers, which get no gradient."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: Qwen3Config, tokens: int) -> None:
        super().__init__()
        cos, sin = Qwen3RotaryEmbedding(config)(torch.empty(1), torch.arange(tokens)[None])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.cos[:, : q.shape[1]], self.sin[:, : q.shape[1]]
        turned: tuple[Tensor, Tensor] = apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=2)
        return turned


@triton_candidate(inputs=predictions, dims=DIMS, **COMMON)
class Loss(nn.Module):
    """Inputs: ``(tokens, vocab)`` and ``(tokens,)``. Output: a scalar."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels)
