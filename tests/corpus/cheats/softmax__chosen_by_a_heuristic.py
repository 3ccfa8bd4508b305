# family: wrong numbers
# trick: A heuristic gives up to 500 elements a block of 256 columns. All corners of the declared sizes are right, and one row of 257 to 500 is not.
# rule: sizes
# static check: no
# proof: (Model().eval(), (torch.zeros(1, 400),))

import torch
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda given: 256 if given["n"] * given["width"] <= 500 else 1024})
@triton.jit
def softmax_kernel(x_ptr, out_ptr, n, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    top = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * width + columns, top / tl.sum(top, axis=0), mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(n,)](x, out, n, width)
    return out
