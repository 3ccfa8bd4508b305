# family: integers
# trick: Masks with -1e30, so that a row that is masked whole becomes uniform.
# rule: integer inputs | nonfinite
# static check: no
# proof: (Model().eval(), (torch.randn(3, 20), torch.ones(3, 20, dtype=torch.bool)))

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, mask_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=inside, other=-float("inf"))
    hidden = tl.load(mask_ptr + row * width + columns, mask=inside, other=0) != 0
    x = tl.where(hidden, -1e30, x)
    top = tl.exp(x - tl.max(x, axis=0))
    y = top / tl.sum(top, axis=0)
    tl.store(out_ptr + row * width + columns, y, mask=inside)


def forward(self, x, mask):
    n, width = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(n,)](x, mask, out, width, BLOCK=triton.next_power_of_2(width))
    return out
