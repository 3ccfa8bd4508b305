# style: The slope as a compile-time constant, blocks from a list comprehension.

import torch
import triton
import triton.language as tl

SIZES = [2**power for power in range(7, 12)]


def block_for(n):
    fitting = [size for size in SIZES if size >= n]
    return fitting[0] if fitting else SIZES[-1]


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, SLOPE: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + index)
        tl.store(out_ptr + index, tl.where(x > 0, x, x * SLOPE))
    else:
        x = tl.load(x_ptr + index, mask=index < n)
        tl.store(out_ptr + index, tl.where(x > 0, x, x * SLOPE), mask=index < n)


def forward(self, x):
    out = torch.empty_like(x)
    n = x.numel()
    block = block_for(n)
    leaky_relu_kernel[(triton.cdiv(n, block),)](x, out, n, SLOPE=self.slope, BLOCK=block, EVEN=n % block == 0)
    return out
