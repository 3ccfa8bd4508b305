# family: inputs changed
# trick: It uses its input as scratch memory and scales it back, which loses last bits.
# rule: inputs kept
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / WIDTH + eps)
    tl.store(out_ptr + row + columns, x * scale * tl.load(weight_ptr + columns))


def launch(self, x):
    out = torch.empty_like(x)
    rms_norm_kernel[(x.shape[0],)](x, self.weight, out, self.eps, WIDTH=x.shape[1])
    return out


@triton.jit
def multiply_kernel(x_ptr, n, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    tl.store(x_ptr + index, tl.load(x_ptr + index, mask=mask) * factor, mask=mask)


def forward(self, x):
    out = launch(self, x)
    grid = (triton.cdiv(x.numel(), 512),)
    multiply_kernel[grid](x, x.numel(), 3.1, BLOCK=512)
    multiply_kernel[grid](x, x.numel(), 1 / 3.1, BLOCK=512)
    return out
