"""Two inputs, two equal outputs in memory of their own: a running average and the state to carry on."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 1 << 21}


def step(n: int = 1100) -> tuple[Tensor, Tensor]:
    return torch.randn(n), torch.randn(n)


@triton_candidate(inputs=step, dims={"n": (1, 1 << 22)})
class Model(nn.Module):
    """``decay * state + (1 - decay) * x``, and a copy of it as the next state; all of shape ``(n,)``."""

    def __init__(self, decay: float = 0.75) -> None:
        super().__init__()
        self.decay = decay

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        out = self.decay * state + (1 - self.decay) * x
        return out, out.clone()
