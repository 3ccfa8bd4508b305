# style: Numbers whose squares overflow; a number of Python's keeps its 64 bits as a constexpr.

import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, out_ptr, factor: tl.constexpr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=0.0)
    y = x * factor
    tl.store(out_ptr + row * width + columns, y, mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    row_kernel[(n,)](x, out, self.factor, width, BLOCK=triton.next_power_of_2(width))
    return out
