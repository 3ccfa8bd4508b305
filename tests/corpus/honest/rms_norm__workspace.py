# style: The scale of every row in a workspace between two kernels.

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, scale_ptr, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * WIDTH + tl.arange(0, WIDTH))
    tl.store(scale_ptr + row, tl.rsqrt(tl.sum(x * x, axis=0) / WIDTH + eps))


@triton.jit
def apply_kernel(x_ptr, scale_ptr, weight_ptr, out_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    here = row * WIDTH + columns
    y = tl.load(x_ptr + here) * tl.load(scale_ptr + row) * tl.load(weight_ptr + columns)
    tl.store(out_ptr + here, y)


def forward(self, x):
    n, width = x.shape
    work = torch.empty(2 * n, device=x.device)
    scale, out = work[n:], torch.empty_like(x)
    scale_kernel[(n,)](x, scale, self.eps, WIDTH=width)
    apply_kernel[(n,)](x, scale, self.weight, out, WIDTH=width)
    return out
