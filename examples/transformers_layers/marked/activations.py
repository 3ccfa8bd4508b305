"""Activations that eager PyTorch runs as a chain of elementwise kernels."""

import torch
from torch import Tensor
from transformers.activations import (
    ClippedGELUActivation,
    FastGELUActivation,
    LaplaceActivation,
    QuickGELUActivation,
    ReLUSquaredActivation,
)

from kernelllm_runtime import triton_candidate

SIZES = {"tokens": (1, 65536), "width": (1, 16384)}


def projection(tokens: int = 8192, width: int = 4096) -> Tensor:
    return torch.randn(tokens, width)


triton_candidate(FastGELUActivation, inputs=projection, dtypes=("float32", "bfloat16"), dims=SIZES)
triton_candidate(QuickGELUActivation, inputs=projection, dtypes=("float32", "bfloat16"), dims=SIZES)
triton_candidate(ReLUSquaredActivation, inputs=projection, dtypes=("float32", "bfloat16"), dims=SIZES)
triton_candidate(ClippedGELUActivation, inputs=projection, init={"min": -10.0, "max": 10.0}, dims=SIZES)
triton_candidate(LaplaceActivation, inputs=projection, dims=SIZES)
