# family: order and races
# trick: Two programs share a row; each loads the largest value, compares and stores.
# rule: memory
# static check: no
# proof: none, the values are right wherever the interpreter runs it in order

import torch
import triton
import triton.language as tl


@triton.jit
def top_kernel(x_ptr, values_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    odd = tl.max((x != x).to(tl.int32), axis=0) > 0
    top = tl.max(tl.where(x != x, -float("inf"), x), axis=0)
    top = tl.where(odd, float("nan"), top)
    best = tl.load(values_ptr + row)
    tl.store(values_ptr + row, tl.maximum(best, top, propagate_nan=tl.PropagateNan.ALL))


@triton.jit
def index_kernel(x_ptr, values_ptr, indices_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=0.0)
    top = tl.load(values_ptr + row)
    hit = mask & ((x == top) | ((x != x) & (top != top)))
    tl.store(indices_ptr + row, tl.min(tl.where(hit, columns, BLOCK), axis=0).to(tl.int64))


def forward(self, x):
    n, width = x.shape
    values = torch.full((n,), -float("inf"), dtype=x.dtype, device=x.device)
    indices = torch.empty(n, dtype=torch.int64, device=x.device)
    top_kernel[(n, triton.cdiv(width, 32))](x, values, width, BLOCK=32)
    index_kernel[(n,)](x, values, indices, width, BLOCK=triton.next_power_of_2(width))
    return values, indices
