# family: memory
# trick: The mask lets one row too many be written.
# rule: memory | guards
# static check: no
# proof: none, what is written beyond the end is no part of the result

import torch
import triton
import triton.language as tl


@triton.jit
def top_kernel(x_ptr, values_ptr, indices_ptr, n, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = (columns < width) & (row < n)
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    strange = x != x
    odd = tl.max(strange.to(tl.int32), axis=0) > 0
    top = tl.max(tl.where(strange, -float("inf"), x), axis=0)
    hit = mask & tl.where(odd, strange, x == top)
    tl.store(indices_ptr + row, tl.min(tl.where(hit, columns, BLOCK), axis=0).to(tl.int64), mask=row < n)
    tl.store(values_ptr + row, tl.where(odd, float("nan"), top), mask=row <= n)


def forward(self, x):
    n, width = x.shape
    values = torch.empty(n, dtype=x.dtype, device=x.device)
    indices = torch.empty(n, dtype=torch.int64, device=x.device)
    top_kernel[(n + 1,)](x, values, indices, n, width, BLOCK=triton.next_power_of_2(width))
    return values, indices
