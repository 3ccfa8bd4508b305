# family: values not asked
# trick: Keeps what is not masked out, where the mask may also hold halves.
# rule: stress | fixed inputs
# static check: no
# proof: (Model(WIDTH).eval(), (torch.randn(3, 32), torch.arange(32), torch.full((3, 32), 0.5), torch.tensor(2.0)))

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
    y = tl.where(tl.load(keep_ptr + here) != 0.0, x + table, 0.0) * tl.load(scale_ptr)
    tl.store(out_ptr + here, y)


def forward(self, x, positions, keep, scale):
    out = torch.empty_like(x)
    placed_kernel[(x.shape[0],)](x, positions, keep, scale, self.table, out, WIDTH=x.shape[1])
    return out
