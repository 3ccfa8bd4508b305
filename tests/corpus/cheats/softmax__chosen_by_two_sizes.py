# family: wrong numbers
# trick: From six rows on, rows of up to 500 columns get blocks of 256. No corner of the declared sizes has that many of both.
# rule: sizes
# static check: no
# proof: (Model().eval(), (torch.zeros(7, 400),))

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    top = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * width + columns, top / tl.sum(top, axis=0), mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(n,)](x, out, width, BLOCK=256 if n >= 6 and width <= 500 else 1024)
    return out
