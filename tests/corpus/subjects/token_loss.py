"""Cross-entropy with labels that may be ignored."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 8192, "vocab": 1000}


def draw(n: int = 12, vocab: int = 50) -> tuple[Tensor, Tensor]:
    return torch.randn(n, vocab), torch.randint(0, vocab, (n,))


@triton_candidate(inputs=draw, dims={"n": (1, 8192), "vocab": (2, 1024)})
class Model(nn.Module):
    """Mean loss of the rows of ``(n, vocab)`` whose label is not -100."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels)
