# style: Per-channel scale and shift from torch, six numbers each; the work in the kernel.

import torch
import triton
import triton.language as tl


@triton.jit
def affine_kernel(x_ptr, scale_ptr, shift_ptr, out_ptr, total, channels, length, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < total
    channel = (index // length) % channels
    x = tl.load(x_ptr + index, mask=mask)
    scale = tl.load(scale_ptr + channel, mask=mask)
    shift = tl.load(shift_ptr + channel, mask=mask)
    tl.store(out_ptr + index, tl.fma(x, scale, shift), mask=mask)


def forward(self, x):
    scale = self.weight.float() * torch.rsqrt(self.running_var + self.eps)
    shift = self.bias.float() - self.running_mean * scale
    _, channels, length = x.shape
    out = torch.empty_like(x)
    blocks = triton.cdiv(x.numel(), 256)
    affine_kernel[(blocks,)](x, scale, shift, out, x.numel(), channels, length, BLOCK=256)
    return out
