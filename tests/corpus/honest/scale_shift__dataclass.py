# style: How it is launched is a dataclass.

import torch
import triton
import triton.language as tl
from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    block: int
    warps: int


@triton.jit
def k(x_ptr, w_ptr, b_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + i, mask=i < width)
    tl.store(
        out_ptr + row * width + i,
        x * tl.load(w_ptr + i, mask=i < width) + tl.load(b_ptr + i, mask=i < width),
        mask=i < width,
    )


def forward(self, x):
    launch = Launch(triton.next_power_of_2(x.shape[1]), 4)
    out = torch.empty_like(x)
    k[(x.shape[0],)](x, self.weight, self.bias, out, x.shape[1], BLOCK=launch.block, num_warps=launch.warps)
    return out
