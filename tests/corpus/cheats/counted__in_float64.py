# family: integers
# trick: Adds integers as float64, which has 53 bits.
# rule: integer inputs
# static check: no
# proof: (Model().eval(), (torch.full((3, 64), 2**55 + 1),))

import torch
import triton
import triton.language as tl


@triton.jit
def counted_kernel(x_ptr, out_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * WIDTH + tl.arange(0, WIDTH)).to(tl.float64)
    tl.store(out_ptr + row, tl.sum(x, axis=0).to(tl.int64))


def forward(self, x):
    out = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    counted_kernel[(x.shape[0],)](x, out, WIDTH=64)
    return out
