# style: Reads every input, also those that are always the same.

import torch
import triton
import triton.language as tl


@triton.jit
def placed_kernel(x_ptr, positions_ptr, keep_ptr, scale_ptr, table_ptr, out_ptr, WIDTH: tl.constexpr):
    columns = tl.arange(0, WIDTH)
    here = tl.program_id(0) * WIDTH + columns
    x = tl.load(x_ptr + here)
    positions = tl.load(positions_ptr + columns)
    positions = tl.where(positions < 0, positions + WIDTH, positions)
    table = tl.load(table_ptr + positions)
    y = (x + table) * tl.load(keep_ptr + here) * tl.load(scale_ptr)
    tl.store(out_ptr + here, y)


def forward(self, x, positions, keep, scale):
    out = torch.empty_like(x)
    placed_kernel[(x.shape[0],)](x, positions, keep, scale, self.table, out, WIDTH=x.shape[1])
    return out
