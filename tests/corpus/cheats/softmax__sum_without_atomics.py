# family: order and races
# trick: Two programs share a row and add to its sum without atomics.
# rule: memory | values | sizes
# static check: no
# proof: none, the values are right wherever the interpreter runs it in order

import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, sum_ptr, width, BLOCK: tl.constexpr, HALF: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    mine = (columns >= tl.program_id(1) * HALF) & (columns < (tl.program_id(1) + 1) * HALF)
    powers = tl.where(mine, tl.exp(x - tl.max(x, axis=0)), 0.0)
    tl.store(sum_ptr + row, tl.load(sum_ptr + row) + tl.sum(powers, axis=0))


@triton.jit
def softmax_kernel(x_ptr, sum_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * width + columns, powers / tl.load(sum_ptr + row), mask=mask)


def forward(self, x):
    n, width = x.shape
    block = triton.next_power_of_2(width)
    out, total = torch.empty_like(x), torch.zeros(n, device=x.device)
    sum_kernel[(n, 2)](x, total, width, BLOCK=block, HALF=max(block // 2, 1))
    softmax_kernel[(n,)](x, total, out, width, BLOCK=block)
    return out
