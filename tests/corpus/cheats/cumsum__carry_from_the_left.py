# family: order and races
# trick: Each program reads the carry of the one before, as if that had run already.
# rule: memory
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, carry_ptr, width, TILE: tl.constexpr):
    row = tl.program_id(0)
    tile = tl.program_id(1)
    tiles = tl.num_programs(1)
    columns = tile * TILE + tl.arange(0, TILE)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=0.0)
    carry = tl.load(carry_ptr + row * tiles + tile - 1, mask=tile > 0, other=0.0)
    tl.store(out_ptr + row * width + columns, tl.cumsum(x, axis=0) + carry, mask=mask)
    tl.store(carry_ptr + row * tiles + tile, tl.sum(x, axis=0) + carry)


def forward(self, x):
    n, width = x.shape
    tiles = triton.cdiv(width, 32)
    out = torch.empty_like(x)
    cumsum_kernel[(n, tiles)](x, out, torch.zeros(n, tiles, device=x.device), width, TILE=32)
    return out
