# style: Its epsilon is a constant in the kernel, and SUPPORTS says so.

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, WIDTH: tl.constexpr, EPS: tl.constexpr = 1e-5):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns)
    mean = tl.sum(x * x, axis=0) / WIDTH
    tl.store(out_ptr + row + columns, x * tl.rsqrt(mean + EPS) * tl.load(weight_ptr + columns))


def forward(self, x):
    out = torch.empty_like(x)
    rms_norm_kernel[(len(x),)](x, self.weight, out, x.shape[1])
    return out
