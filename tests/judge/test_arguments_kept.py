"""A kernel leaves the plain values of its caller's arguments as they are, as it does with tensors."""

import pytest

from kernelllm_judge.candidate import Speed

REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, factors):
        return x * factors["a"]


def get_inputs():
    return [torch.randn(8, 32), {"a": 2.0, "more": 1}]


def get_init_inputs():
    return []
"""

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) * factor, i < n)


def forward(self, x, factors):
    out = torch.empty_like(x)
    n = x.numel()
    scale_kernel[(triton.cdiv(n, 128),)](x, out, factors["a"], n, BLOCK=128)
    return out
"""


@pytest.mark.parametrize("line", ["", 'factors["a"] = 5.0', "factors.update(more=7)", 'factors["b"] = 1'])
def test_a_changed_argument_is_refused(warm, tmp_path, line):
    file = tmp_path / "reference.py"
    file.write_text(REFERENCE)
    kernel = KERNEL.replace("    return out\n", f"    {line}\n    return out\n")
    verdict = warm.judge(str(file), kernel, Speed(timing=False), None).verdict
    if line:
        assert verdict.rule == "surroundings" and "what its arguments hold" in verdict.reason
    else:
        assert verdict.accepted
