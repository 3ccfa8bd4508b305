"""Half precision: a gated activation in float16 and in bfloat16."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 1 << 20}


def halves(n: int = 1200) -> tuple[Tensor, Tensor]:
    return torch.randn(n), torch.randn(n)


@triton_candidate(inputs=halves, dims={"n": (1, 1 << 20)}, dtypes=("float16", "bfloat16"))
class Model(nn.Module):
    """``silu(gate) * up`` for two tensors of shape ``(n,)``."""

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate) * up
