# style: It reads the NumPy scalar from the module.

import torch
import triton
import triton.language as tl


@triton.jit
def scaled_kernel(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    tl.store(out_ptr + index, x * scale, mask=index < n)


def forward(self, x):
    out = torch.empty_like(x)
    scaled_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), self.scale, BLOCK=128)
    return out
