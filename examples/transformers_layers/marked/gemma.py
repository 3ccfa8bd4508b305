"""Gemma: a normalisation whose weight is an offset from one."""

import torch
from torch import Tensor
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm

from kernelllm_runtime import triton_candidate


def prompt(batch: int = 8, seq: int = 2048) -> Tensor:
    return torch.randn(batch, seq, 2048)


triton_candidate(
    GemmaRMSNorm,
    inputs=prompt,
    init=(2048,),
    dtypes=("float32", "bfloat16"),
    dims={"batch": (1, 32), "seq": (1, 8192)},
)
