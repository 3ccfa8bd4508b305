# style: Programs that meet a NaN all store the same to one flag, which the next kernel reads.

import torch
import triton
import triton.language as tl


@triton.jit
def look_kernel(x_ptr, flag_ptr, width, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * width + columns, mask=columns < width, other=0.0)
    if tl.max((x != x).to(tl.int32), axis=0) > 0:
        tl.store(flag_ptr, 1)


@triton.jit
def top_kernel(x_ptr, flag_ptr, values_ptr, indices_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    strange = (x != x) & (tl.load(flag_ptr) != 0)
    odd = tl.max(strange.to(tl.int32), axis=0) > 0
    top = tl.max(tl.where(strange, -float("inf"), x), axis=0)
    hit = mask & tl.where(odd, strange, x == top)
    tl.store(indices_ptr + row, tl.min(tl.where(hit, columns, BLOCK), axis=0).to(tl.int64))
    tl.store(values_ptr + row, tl.where(odd, float("nan"), top))


def forward(self, x):
    n, width = x.shape
    flag = torch.zeros((), dtype=torch.int32, device=x.device)
    values = torch.empty(n, dtype=x.dtype, device=x.device)
    indices = torch.empty(n, dtype=torch.int64, device=x.device)
    block = triton.next_power_of_2(width)
    look_kernel[(n,)](x, flag, width, BLOCK=block)
    top_kernel[(n,)](x, flag, values, indices, width, BLOCK=block)
    return values, indices
