# style: Unpacks the module's list.

import torch
import triton
import triton.language as tl


@triton.jit
def poly(x_ptr, out_ptr, n, a, b, c, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, a * x * x + b * x + c, mask=i < n)


def forward(self, x):
    a, b, c = self.coefficients
    out = torch.empty_like(x)
    poly[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), a, b, c, BLOCK=256)
    return out
