# style: Triton's own scan over a masked row.

import torch
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=0.0)
    tl.store(out_ptr + row * width + columns, tl.cumsum(x, axis=0), mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    cumsum_kernel[(n,)](x, out, width, BLOCK=triton.next_power_of_2(width))
    return out
