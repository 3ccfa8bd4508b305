"""What turns activations into few bits."""

import torch
from torch import Tensor, nn

from kernelllm_runtime import triton_candidate


def hidden_states(rows: int = 16) -> Tensor:
    return torch.randn(rows, 256)


@triton_candidate(inputs=hidden_states, init=(1 / 64,), dims={"rows": (1, 4096)})
class QuantizeFP8(nn.Module):
    """Values in FP8 (e4m3) by a scale that was calibrated before; what is larger than 448 scales becomes that.

    Input: ``(rows, width)``; output: the same in ``float8_e4m3fn``.
    """

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([scale]))

    def forward(self, x: Tensor) -> Tensor:
        return (x / self.scale).clamp(-448, 448).to(torch.float8_e4m3fn)


@triton_candidate(inputs=hidden_states, dims={"rows": (1, 4096)})
class QuantizeInt8(nn.Module):
    """Each row in int8, scaled so that its largest value is 127; halves go to the even neighbour.

    Input: ``(rows, width)``; outputs: the same in int8, and the scales, ``(rows, 1)``.
    """

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scale = x.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
        return (x / scale).round().clamp(-128, 127).to(torch.int8), scale
