# family: memory
# trick: The row before is loaded, too, which is before the table where the id is 0.
# rule: memory
# static check: no
# proof: none, what is read beyond the end is thrown away

import torch
import triton
import triton.language as tl


@triton.jit
def gather_kernel(ids_ptr, table_ptr, out_ptr, width, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    index = tl.load(ids_ptr + row)
    x = tl.load(table_ptr + index * width + columns, mask=mask)
    before = tl.load(table_ptr + (index - 1) * width + columns, mask=mask)
    tl.store(out_ptr + row * width + columns, tl.where(mask, x, before) * scale, mask=mask)


def forward(self, ids):
    width = self.table.shape[1]
    out = torch.empty((ids.numel(), width), dtype=self.table.dtype, device=ids.device)
    # Ids in ascending order from 0, so that the first row is among them.
    gather_kernel[(ids.numel(),)](ids, self.table, out, width, self.scale, BLOCK=32)
    return out.view(*ids.shape, width)
