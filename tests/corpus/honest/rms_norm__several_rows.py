# style: Several rows a program, as a two-dimensional tile with a masked end.

import torch
import triton
import triton.language as tl


@triton.jit
def mean_square(x, width):
    return tl.sum(x * x, axis=1) / width


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, n, eps, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    mask = rows[:, None] < n
    index = rows[:, None] * WIDTH + columns[None, :]
    x = tl.load(x_ptr + index, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + columns)
    scale = tl.rsqrt(mean_square(x, WIDTH) + eps)
    tl.store(out_ptr + index, x * scale[:, None] * weight[None, :], mask=mask)


def forward(self, x):
    n, width = x.shape
    out = x.new_empty(n, width)
    rms_norm_kernel[(triton.cdiv(n, 4),)](x, self.weight, out, n, self.eps, ROWS=4, WIDTH=width)
    return out
