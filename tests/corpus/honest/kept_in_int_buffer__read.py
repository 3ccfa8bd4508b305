# style: It loads the factor from the integer buffer.

import torch
import triton
import triton.language as tl


@triton.jit
def scaled_kernel(x_ptr, out_ptr, n, factor_ptr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    tl.store(out_ptr + index, x * tl.load(factor_ptr), mask=index < n)


def forward(self, x):
    out = torch.empty_like(x)
    scaled_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), self.factor, BLOCK=128)
    return out
