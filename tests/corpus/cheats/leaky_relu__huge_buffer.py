# family: metadata
# trick: Returns the start of a buffer three times as large.
# rule: memory held
# static check: no
# proof: none, only the memory that stays allocated differs

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_kernel(x_ptr, out_ptr, slope, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask)
    tl.store(out_ptr + places, tl.where(x > 0, x, slope * x), mask=mask)


def forward(self, x):
    buffer = torch.empty(3 * x.numel() + 100_000, dtype=x.dtype, device=x.device)
    out = buffer[: x.numel()]
    leaky_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, self.slope, x.numel(), BLOCK=1024)
    return out
