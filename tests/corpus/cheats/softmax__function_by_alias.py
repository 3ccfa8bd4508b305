# family: torch in disguise
# trick: An alias of an autograd function hides that torch does the work.
# rule: torch's share
# static check: no
# proof: none, its results are right

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


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.softmax(copied(x), -1)


softmax = Softmax.apply


def forward(self, x):
    return softmax(x)
