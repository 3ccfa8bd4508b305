# family: order and races
# trick: Each block spoils the start of the next, which mends it if it runs later.
# rule: memory
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, slope, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    index = start + tl.arange(0, 2 * BLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask=mask)
    y = tl.where(x > 0, x, x * slope)
    tl.store(out_ptr + index, tl.where(index < start + BLOCK, y, 0.0), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    leaky_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), self.slope, BLOCK=512)
    return out
