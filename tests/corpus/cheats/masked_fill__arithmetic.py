# family: wrong numbers
# trick: x * (1 - mask) + fill * mask lets a masked NaN through.
# rule: nonfinite
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def fill_kernel(x_ptr, mask_ptr, out_ptr, total, fill, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < total
    x = tl.load(x_ptr + index, mask=inside)
    masked = tl.load(mask_ptr + index, mask=inside)
    tl.store(out_ptr + index, x * (1.0 - masked.to(tl.float32)) + fill * masked.to(tl.float32), mask=inside)


def launch(self, x, mask):
    out = torch.empty_like(x)
    fill_kernel[(triton.cdiv(x.numel(), 256),)](x, mask, out, x.numel(), self.fill, BLOCK=256)
    return out


def forward(self, x, mask):
    return launch(self, x, mask)
