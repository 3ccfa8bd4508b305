# family: wrong numbers
# trick: It writes zeros, which are near the small values of long rows.
# rule: values
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def zero_kernel(out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, tl.zeros((BLOCK,), tl.float32), mask=index < n)


def forward(self, x):
    out = torch.empty_like(x)
    zero_kernel[(triton.cdiv(x.numel(), 512),)](out, x.numel(), BLOCK=512)
    return out
