# family: mixed scale
# trick: Divides by 1e200, rounds to float32, and multiplies again.
# rule: values
# static check: no
# proof: none, its error is smaller than what a proof must show

import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, out_ptr, factor, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=0.0)
    y = ((x * 1e-200).to(tl.float32).to(tl.float64) * factor) * 1e200
    tl.store(out_ptr + row * width + columns, y, mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    row_kernel[(n,)](x, out, self.factor, width, BLOCK=triton.next_power_of_2(width))
    return out
