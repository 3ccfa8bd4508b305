# style: It reads the sign of the module's zero.

import math

import torch
import triton
import triton.language as tl


@triton.jit
def scaled_kernel(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    tl.store(out_ptr + index, x * scale, mask=index < n)


def forward(self, x):
    out = torch.empty_like(x)
    scale = math.copysign(2.0, self.side)
    scaled_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), scale, BLOCK=128)
    return out
