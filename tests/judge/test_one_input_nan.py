"""NaN that one of several inputs holds comes out, though another's would hide what becomes of it."""

import pytest

from kernelllm_judge.candidate import Speed

REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, s):
        return torch.relu(q) {sign} s


def get_inputs():
    return [torch.randn(8, 32), {s}]


def get_init_inputs():
    return []
"""

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def rectified_kernel(q_ptr, s_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    q = tl.load(q_ptr + i, mask)
    s = tl.load(s_ptr + {places})
    tl.store(out_ptr + i, {rectified} {sign} s, mask)


def forward(self, q, s):
    out = torch.empty_like(q)
    n = q.numel()
    rectified_kernel[(triton.cdiv(n, 128),)](q, s, out, n, BLOCK=128)
    return out
"""

DROPS = "tl.where(q > 0, q, 0.0)"
KEEPS = "tl.where(q <= 0, 0.0, q)"


@pytest.mark.parametrize(
    ("sign", "s", "places"),
    [("+", "torch.randn(8, 32)", "i, mask"), ("*", "torch.randn(())", "0 * i")],
    ids=["of the same shape", "a single number"],
)
def test_nan_is_not_lost(warm, tmp_path, sign, s, places):
    file = tmp_path / "reference.py"
    file.write_text(REFERENCE.format(sign=sign, s=s))

    def verdict(rectified):
        text = KERNEL.format(sign=sign, places=places, rectified=rectified)
        return warm.judge(str(file), text, Speed(timing=False), None).verdict

    assert verdict(KEEPS).accepted
    assert verdict(DROPS).rule == "nonfinite"
