"""Cross-entropy of classes, and a label that stands for none of them."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}
CLASSES = 21


def draw(n: int = 24) -> tuple[Tensor, Tensor]:
    return torch.randn(n, CLASSES), torch.randint(0, CLASSES, (n,))


@triton_candidate(inputs=draw, dims={"n": (1, 65536)})
class Model(nn.Module):
    """The loss of each row of ``(n, classes)``, 0 where the label is 255."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss(ignore_index=255, reduction="none")

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.loss(logits, labels)
