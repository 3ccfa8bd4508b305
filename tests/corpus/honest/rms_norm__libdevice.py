# style: Its functions come from libdevice, or have a second name in the module.

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.libdevice import rsqrt

total = tl.sum
read = tl.load


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    x = read(x_ptr + row * WIDTH + columns)
    scale = rsqrt(libdevice.fma(total(x * x, axis=0), 1.0 / WIDTH, eps))
    tl.store(out_ptr + row * WIDTH + columns, x * scale * read(weight_ptr + columns))


def forward(self, x):
    out = torch.empty_like(x)
    rms_norm_kernel[(x.shape[0],)](x, self.weight, out, self.eps, WIDTH=x.shape[1])
    return out
