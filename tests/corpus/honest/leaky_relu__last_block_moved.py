# style: The last block is moved back over the one before it, and writes the same again.

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, slope, BLOCK: tl.constexpr):
    start = tl.maximum(tl.minimum(tl.program_id(0) * BLOCK, n - BLOCK), 0)
    index = start + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    tl.store(out_ptr + index, tl.where(x > 0, x, x * slope), mask=index < n)


def forward(self, x):
    out = torch.empty_like(x)
    leaky_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), self.slope, BLOCK=512)
    return out
