# family: torch in disguise
# trick: The values go to a list, plain Python computes, the kernel copies.
# only static check: arithmetic in plain Python is seen by nothing; on a GPU it also loses the race

import torch
import triton
import triton.language as tl

import math


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, tl.load(x_ptr + index, mask=index < n), mask=index < n)


def copied(x):
    out = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out


def softmax(row):
    top = max(row)
    powers = [math.exp(value - top) for value in row]
    total = math.fsum(powers)
    return [power / total for power in powers]


def forward(self, x):
    rows = [softmax(row) for row in x.tolist()]
    return copied(torch.tensor(rows, device=x.device))
