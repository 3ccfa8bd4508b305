# family: wrong numbers
# trick: The kernel uses Python that no GPU can run.
# rule: compile | run
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, slope, BLOCK: tl.constexpr):
    parts = []
    for start in [0, BLOCK]:
        parts.append(tl.program_id(0) * 2 * BLOCK + start + tl.arange(0, BLOCK))
    for index in parts:
        x = tl.load(x_ptr + index, mask=index < n)
        tl.store(out_ptr + index, tl.where(x > 0, x, x * slope), mask=index < n)


def forward(self, x):
    out = torch.empty_like(x)
    leaky_relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), self.slope, BLOCK=512)
    return out
