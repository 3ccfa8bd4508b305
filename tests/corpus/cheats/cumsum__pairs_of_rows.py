# family: wrong numbers
# trick: Each program takes two rows; the last one of an odd number is forgotten.
# rule: sizes
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    for i in range(2):
        row = (tl.program_id(0) * 2 + i) * width
        x = tl.load(x_ptr + row + columns, mask=mask, other=0.0)
        tl.store(out_ptr + row + columns, tl.cumsum(x, axis=0), mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    cumsum_kernel[(n // 2,)](x, out, width, BLOCK=triton.next_power_of_2(width))
    return out
