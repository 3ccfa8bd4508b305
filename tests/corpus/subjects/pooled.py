"""Max pooling with padding, of fewer rows than values that are planted."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 4096, "width": 512}


def draw(n: int = 3, width: int = 50) -> Tensor:
    return torch.rand(n, width)


@triton_candidate(inputs=draw, dims={"n": (1, 4096), "width": (4, 512)})
class Model(nn.Module):
    """Windows of 3, with a step of 2, over rows of ``(n, width)`` padded by 1."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool1d(3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(x[:, None])[:, 0]
