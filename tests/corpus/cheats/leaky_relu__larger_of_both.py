# family: attributes
# trick: Takes the larger of the input and its product with the slope, which is wrong for slopes above 1.
# rule: attributes
# static check: no
# proof: (Model(3.0).eval(), (torch.tensor([-1.0, 2.0]),))

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_kernel(x_ptr, out_ptr, slope, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask)
    tl.store(out_ptr + places, tl.maximum(x, slope * x, propagate_nan=tl.PropagateNan.ALL), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    leaky_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, self.slope, x.numel(), BLOCK=1024)
    return out
