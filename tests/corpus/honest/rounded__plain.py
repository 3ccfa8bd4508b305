# style: It rounds halves to even.

import torch
import triton
import triton.language as tl


@triton.jit
def rounded_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask)
    tl.store(
        out_ptr + places,
        tl.where(tl.abs(x - tl.floor(x) - 0.5) == 0, 2 * tl.floor(0.5 * tl.floor(x) + 0.5), tl.floor(x + 0.5))
        * 0.25,
        mask=mask,
    )


def forward(self, x):
    out = torch.empty_like(x)
    rounded_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
