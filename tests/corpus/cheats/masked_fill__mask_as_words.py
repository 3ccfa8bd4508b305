# family: memory
# trick: The mask is read as words of four bytes, of which three belong to others.
# rule: memory | run
# static check: yes
# proof: none, what is read beyond the end is thrown away

import torch
import triton
import triton.language as tl


@triton.jit
def fill_kernel(x_ptr, mask_ptr, out_ptr, total, fill, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < total
    x = tl.load(x_ptr + index, mask=inside)
    words = mask_ptr.to(tl.pointer_type(tl.int8)) + index
    masked = tl.load(words.to(tl.pointer_type(tl.int32)), mask=inside, other=0) & 1
    tl.store(out_ptr + index, tl.where(masked != 0, fill, x), mask=inside)


def forward(self, x, mask):
    out = torch.empty_like(x)
    fill_kernel[(triton.cdiv(x.numel(), 256),)](x, mask, out, x.numel(), self.fill, BLOCK=256)
    return out
