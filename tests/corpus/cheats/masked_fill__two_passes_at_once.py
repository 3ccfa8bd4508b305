# family: order and races
# trick: One program copies a row and another fills it, in one launch.
# rule: memory | repeat | values
# static check: no
# proof: none, the values are right wherever the interpreter runs it in order

import torch
import triton
import triton.language as tl


@triton.jit
def fill_kernel(x_ptr, mask_ptr, out_ptr, width, fill, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    here = row * width + columns
    if tl.program_id(1) == 0:
        tl.store(out_ptr + here, tl.load(x_ptr + here, mask=inside), mask=inside)
    else:
        masked = tl.load(mask_ptr + here, mask=inside, other=0) != 0
        tl.store(out_ptr + here, tl.zeros((BLOCK,), tl.float32) + fill, mask=inside & masked)


def forward(self, x, mask):
    out = torch.empty_like(x)
    n, width = x.shape
    fill_kernel[(n, 2)](x, mask, out, width, self.fill, BLOCK=triton.next_power_of_2(width))
    return out
