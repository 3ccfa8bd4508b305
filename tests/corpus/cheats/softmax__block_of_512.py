# family: wrong numbers
# trick: The block has 512 columns, which is enough for the case itself and not for the widest rows that are declared.
# rule: sizes | values
# static check: no
# proof: (Model().eval(), (torch.zeros(2, 1000),))

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
    softmax_kernel[(n,)](x, out, width, BLOCK=512)
    return out
