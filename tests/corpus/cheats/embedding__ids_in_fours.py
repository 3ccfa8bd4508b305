# family: memory
# trick: Ids are loaded four at a time, also behind their end.
# rule: memory
# static check: no
# proof: none, what is read beyond the end is thrown away

import torch
import triton
import triton.language as tl


@triton.jit
def gather_kernel(ids_ptr, table_ptr, out_ptr, n, width, scale, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    index = tl.load(ids_ptr + rows)
    mask = (rows[:, None] < n) & (columns[None, :] < width)
    x = tl.load(table_ptr + index[:, None] * width + columns[None, :], mask=mask)
    tl.store(out_ptr + rows[:, None] * width + columns[None, :], x * scale, mask=mask)


def forward(self, ids):
    n, width = ids.numel(), self.table.shape[1]
    out = torch.empty((n, width), dtype=self.table.dtype, device=ids.device)
    grid = (triton.cdiv(n, 4),)
    gather_kernel[grid](ids, self.table, out, n, width, self.scale, ROWS=4, BLOCK=32)
    return out.view(*ids.shape, width)
