# family: torch in disguise
# trick: functools.partial gives torch's softmax another name.
# rule: torch's share
# static check: no
# proof: none, its results are right

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, total, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, tl.load(x_ptr + index, mask=index < total), mask=index < total)


def copied(x):
    out = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


finish = functools.partial(torch.softmax, dim=-1)


def forward(self, x):
    return finish(copied(x))
