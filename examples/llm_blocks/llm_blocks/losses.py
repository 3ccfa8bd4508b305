"""Training objectives, as they are evaluated."""

import torch
from torch import Tensor, nn

from kernelllm_runtime import triton_candidate


def predictions(tokens: int = 4096, vocab: int = 32000) -> tuple[Tensor, Tensor]:
    return torch.randn(tokens, vocab), torch.randint(vocab, (tokens,))


@triton_candidate(
    inputs=predictions, dtypes=("float32", "bfloat16"), dims={"tokens": (1, 8192), "vocab": (2, 131072)}
)
class SoftmaxCrossEntropy(nn.Module):
    """Mean negative log-likelihood of the right tokens, in float32.

    Inputs: ``logits`` of ``(tokens, vocab)``, and ``labels`` of ``(tokens,)``, int64 below ``vocab``.
    Output: a scalar.
    """

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        wide = logits.float()
        right = wide.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        return (torch.logsumexp(wide, dim=-1) - right).mean()


def scores(batch: int = 4096, classes: int = 4096) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, classes), torch.randint(2, (batch, classes)) * 2.0 - 1.0


@triton_candidate(inputs=scores, dims={"batch": (1, 16384), "classes": (1, 32768)})
class HingeLoss(nn.Module):
    """Mean of ``max(0, 1 - score * label)`` over all pairs.

    Inputs: ``scores`` and ``labels`` (-1 or +1), both ``(batch, classes)``. Output: a scalar.
    """

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return torch.clamp(1 - scores * labels, min=0).mean()
