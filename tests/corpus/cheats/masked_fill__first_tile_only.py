# family: wrong numbers
# trick: Columns beyond the first tile keep their values, masked or not.
# rule: values
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def fill_kernel(x_ptr, mask_ptr, out_ptr, width, fill, TILE: tl.constexpr):
    row = tl.program_id(0) * width
    for start in range(0, width, TILE):
        columns = start + tl.arange(0, TILE)
        inside = columns < width
        x = tl.load(x_ptr + row + columns, mask=inside)
        masked = tl.load(mask_ptr + row + columns, mask=inside & (columns < TILE), other=0)
        tl.store(out_ptr + row + columns, tl.where(masked != 0, fill, x), mask=inside)


def forward(self, x, mask):
    out = torch.empty_like(x)
    fill_kernel[(x.shape[0],)](x, mask, out, x.shape[1], self.fill, TILE=128)
    return out
