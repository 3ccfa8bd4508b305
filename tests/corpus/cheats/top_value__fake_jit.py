# family: torch in disguise
# trick: triton.jit is replaced, so that what looks like a kernel is Python over torch.
# rule: launches
# static check: yes

import torch
import triton
import triton.language as tl


class Fake:
    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        return lambda x: torch.max(x, -1)


triton.jit = Fake


@triton.jit
def top_kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr))


def forward(self, x):
    values, indices = top_kernel[(x.shape[0],)](x)
    return values, indices
