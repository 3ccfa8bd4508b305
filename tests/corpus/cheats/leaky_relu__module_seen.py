# family: seen through
# trick: Another slope where `self` has a forward.
# rule: values
# static check: no
# proof: (Model().eval(), (-torch.ones(9),))

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, slope, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask=mask)
    tl.store(out_ptr + index, tl.where(x > 0, x, x * slope), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    n = x.numel()
    slope = self.slope
    if hasattr(self, "forward"):
        slope = 2.0
    leaky_relu_kernel[(triton.cdiv(n, 1024),)](x, out, n, slope, BLOCK=1024)
    return out
