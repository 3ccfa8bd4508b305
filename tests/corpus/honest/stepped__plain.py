# style: It compares as the original does.

import torch
import triton
import triton.language as tl


@triton.jit
def stepped_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask)
    tl.store(out_ptr + places, tl.where(x > 0.5, x, -1.0), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    stepped_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
