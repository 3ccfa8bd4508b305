# family: wrong numbers
# trick: The positive and the negative half are cut out by maximum and minimum, which drop NaN.
# rule: nonfinite
# static check: no
# proof: none, Triton's own interpreter keeps the NaN that a GPU drops

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, slope, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    y = tl.maximum(x, 0.0) + slope * tl.minimum(x, 0.0)
    tl.store(out_ptr + index, y, mask=index < n)


def forward(self, x):
    out = torch.empty_like(x)
    leaky_relu_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), self.slope, BLOCK=512)
    return out
