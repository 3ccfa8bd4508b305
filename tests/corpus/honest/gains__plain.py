# style: Columns of very different scale, each with its own rounding.

import torch
import triton
import triton.language as tl


@triton.jit
def gains_kernel(x_ptr, gain_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask)
    gain = tl.load(gain_ptr + places % 6, mask=mask)
    y = x * gain
    tl.store(out_ptr + places, y, mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    gains_kernel[(triton.cdiv(x.numel(), 512),)](x, self.gain, out, x.numel(), BLOCK=512)
    return out
