# style: Tiles of a row with a carry, through an associative scan of a helper.

import torch
import triton
import triton.language as tl


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, width, TILE: tl.constexpr):
    start_of_row = tl.program_id(0) * width
    carry = tl.zeros((), tl.float32)
    for start in range(0, width, TILE):
        columns = start + tl.arange(0, TILE)
        mask = columns < width
        x = tl.load(x_ptr + start_of_row + columns, mask=mask, other=0.0)
        tl.store(out_ptr + start_of_row + columns, tl.associative_scan(x, 0, add) + carry, mask=mask)
        carry += tl.sum(x, axis=0)


def forward(self, x):
    out = torch.empty_like(x)
    cumsum_kernel[(x.shape[0],)](x, out, x.shape[1], TILE=64)
    return out
