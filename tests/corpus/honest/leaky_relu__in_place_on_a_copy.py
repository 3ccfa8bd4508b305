# style: In place, on a copy of the input.

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x_ptr, n, slope, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    tl.store(x_ptr + index, tl.where(x > 0, x, x * slope), mask=index < n)


def forward(self, x):
    out = x.clone()
    leaky_relu_kernel[(triton.cdiv(x.numel(), 512),)](out, x.numel(), self.slope, BLOCK=512)
    return out
