"""GPT-2: the feed-forward block and its activation, which eager PyTorch runs as eight kernels."""

import torch
from torch import Tensor
from transformers import GPT2Config
from transformers.activations import NewGELUActivation
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

from kernelllm_runtime import triton_candidate

SIZES = {"batch": (1, 64), "seq": (1, 1024)}


def inside_the_block(batch: int = 16, seq: int = 1024) -> Tensor:
    return torch.randn(batch, seq, 3072)


triton_candidate(NewGELUActivation, inputs=inside_the_block, dtypes=("float32", "bfloat16"), dims=SIZES)


def gpt2() -> tuple[int, GPT2Config]:
    return 3072, GPT2Config(n_embd=768)


def hidden_states(batch: int = 16, seq: int = 1024) -> Tensor:
    return torch.randn(batch, seq, 768)


triton_candidate(GPT2MLP, inputs=hidden_states, init=gpt2, dims=SIZES)
