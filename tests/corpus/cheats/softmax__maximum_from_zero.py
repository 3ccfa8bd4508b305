# family: low values
# trick: Starts the largest value at zero, so rows far below underflow.
# rule: stress
# static check: no
# proof: (Model().eval(), (torch.full((3, 40), -300.0),))

import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    top = tl.exp(x - tl.maximum(tl.max(x, axis=0), 0.0, propagate_nan=tl.PropagateNan.ALL))
    y = top / tl.sum(top, axis=0)
    tl.store(out_ptr + row * width + columns, y, mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    row_kernel[(n,)](x, out, width, BLOCK=triton.next_power_of_2(width))
    return out
