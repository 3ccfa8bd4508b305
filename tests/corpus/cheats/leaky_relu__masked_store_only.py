# family: memory
# trick: Only the store has a mask.
# rule: memory
# static check: no
# proof: none, what is read beyond the end is thrown away

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, slope, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index)
    tl.store(out_ptr + index, tl.where(x > 0, x, x * slope), mask=index < n)


def forward(self, x):
    out = torch.empty_like(x)
    leaky_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), self.slope, BLOCK=512)
    return out
