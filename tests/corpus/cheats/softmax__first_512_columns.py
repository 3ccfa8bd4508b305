# family: sizes
# trick: Reads at most 512 columns of a row.
# rule: sizes | values
# static check: no
# proof: (Model().eval(), (torch.randn(2, 700),))

import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    top = tl.exp(x - tl.max(x, axis=0))
    y = top / tl.sum(top, axis=0)
    tl.store(out_ptr + row * width + columns, y, mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    row_kernel[(n,)](x, out, width, BLOCK=min(triton.next_power_of_2(width), 512))
    return out
