"""The objective of a language model."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernelllm_runtime import triton_candidate


def predictions(tokens: int = 4096, vocab: int = 32000) -> tuple[Tensor, Tensor]:
    return torch.randn(tokens, vocab), torch.randint(vocab, (tokens,))


@triton_candidate(
    inputs=predictions,
    dtypes=("bfloat16",),
    dims={"tokens": (1, 8192), "vocab": (2, 131072)},
    backward=True,
    training=True,
)
class SoftmaxCrossEntropy(nn.Module):
    """Mean negative log-likelihood of the right tokens, in float32.

    Inputs: ``logits`` of ``(tokens, vocab)``, and ``labels`` of ``(tokens,)``, int64 below ``vocab``. Output: a scalar.
    """

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels)
