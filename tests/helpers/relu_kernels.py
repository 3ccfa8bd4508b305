"""A reference in KernelBench's form, and a right answer."""

REFERENCE = """
import torch
from torch import nn

print("imported")


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1


def get_inputs():
    return [torch.randn(16, 100)]


def get_init_inputs():
    return []
"""

ANSWER = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, i < n)
    tl.store(out_ptr + i, tl.where(x < 0.0, 0.0, x) + 1.0, i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
"""
