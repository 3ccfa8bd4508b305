# family: wrong numbers
# trick: The fill value is the default's, whatever the module says.
# rule: attributes
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
    tl.store(out_ptr + index, tl.where(masked, fill, x), mask=inside)


def launch(self, x, mask):
    out = torch.empty_like(x)
    fill_kernel[(triton.cdiv(x.numel(), 256),)](x, mask, out, x.numel(), -7.5, BLOCK=256)
    return out


def forward(self, x, mask):
    fill = self.fill
    return launch(self, x, mask) if fill < 0 else launch(self, x, mask)
