# family: metadata
# trick: Adds zero to its input in place, so that autograd takes it for changed.
# rule: inputs kept
# static check: no
# proof: none, only the version of its input differs

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_kernel(x_ptr, out_ptr, slope, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask)
    tl.store(out_ptr + places, tl.where(x > 0, x, slope * x), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    x[:1].add_(0)
    leaky_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, self.slope, x.numel(), BLOCK=1024)
    return out
