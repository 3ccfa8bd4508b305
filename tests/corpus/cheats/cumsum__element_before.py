# family: memory
# trick: The element to the left is read without a mask, before the start in the first row.
# rule: memory
# static check: no
# proof: none, what is read beyond the end is thrown away

import torch
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    left = tl.load(x_ptr + row * width + columns - 1, mask=mask, other=0.0)
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=0.0)
    before = tl.where(columns > 0, left, 0.0)
    tl.store(out_ptr + row * width + columns, tl.cumsum(before, axis=0) + x, mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    cumsum_kernel[(n,)](x, out, width, BLOCK=triton.next_power_of_2(width))
    return out
