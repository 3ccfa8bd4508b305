# family: torch in disguise
# trick: A vendor GEMM with a triangle of ones, in a target that has no GEMM.
# rule: torch's share | values | near-duplicate
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, tl.load(x_ptr + index, mask=index < n), mask=index < n)


def copied(x):
    out = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out


def forward(self, x):
    width = x.shape[1]
    ones = torch.ones(width, width, device=x.device).triu()
    return copied(x @ ones)
