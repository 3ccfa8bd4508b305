# style: functools.lru_cache keeps the launch's settings for each width.

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    top = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * width + columns, top / tl.sum(top, axis=0), mask=mask)


@functools.lru_cache(maxsize=None)
def settings(width, dtype):
    block = triton.next_power_of_2(width)
    warps = 4
    if block >= 2048 and dtype == torch.float32:
        warps = 8
    return block, warps


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    block, warps = settings(width, x.dtype)
    softmax_kernel[(n,)](x, out, width, BLOCK=block, num_warps=warps)
    return out
