# style: It reads the infinite bound and the NumPy gain from the module.

import torch
import triton
import triton.language as tl


@triton.jit
def clamp_kernel(x_ptr, out_ptr, n, low, high, gain, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    y = tl.where(x < low, low, x)
    y = tl.where(y > high, high, y)
    tl.store(out_ptr + index, y * gain, mask=index < n)


def forward(self, x):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    clamp_kernel[grid](x, out, x.numel(), self.low, self.high, self.gain, BLOCK=128)
    return out
