"""Addresses are followed in the worker that has the GPU, at the real sizes of a case, after all else."""

import pytest
from loading import load

from kernelllm_judge.core.records import Completion
from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render
from kernelllm_judge.rules.catalog import without

MODULES = """
import torch
from torch import nn
from pytest_kernelllm import triton_candidate


@triton_candidate(inputs=lambda n=8192: torch.randn(n, 8192), dims={"n": (1, 8192)})
class Large(nn.Module):
    def forward(self, x):
        return x * 2


@triton_candidate(inputs=lambda n=4096: torch.randn(n, 512), dims={"n": (1, 65536)})
class Softmax(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


@triton_candidate(inputs=lambda n=256: torch.randn(n, 64), dims={"n": (1, 1024)}, backward=True)
class Trained(nn.Module):
    def forward(self, x):
        return x * 3
"""

LARGE = """
import torch
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = here < n
    tl.store(out_ptr + here, tl.load(x_ptr + here, mask=mask, other=0.0) * 2, mask=mask)


def forward(self, x):
    assert x.is_cuda
    out = torch.empty_like(x)
    with torch.cuda.device(x.device):
        double[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""

SOFTMAX = """
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"ROWS": 1}), triton.Config({"ROWS": 4}, num_warps=8)], key=["n"])
@triton.jit
def softmax(x_ptr, out_ptr, n, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    x = tl.load(x_ptr + at, mask=rows[:, None] < n, other=0.0)
    e = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(out_ptr + at, e / tl.sum(e, 1)[:, None], mask=rows[:, None] < n)


def forward(self, x):
    out = torch.empty_like(x)
    softmax[lambda meta: (triton.cdiv(x.shape[0], meta["ROWS"]),)](x, out, x.shape[0], WIDTH=512)
    return out
"""

TRAINED = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + here, tl.load(x_ptr + here, mask=here < n) * 3, mask=here < n)


def scaled(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return scaled(x)

    @staticmethod
    def backward(ctx, grad):
        return scaled(grad)


def forward(self, x):
    return Scale.apply(x)
"""


@pytest.fixture(scope="module")
def decide(tmp_path_factory):
    path = tmp_path_factory.mktemp("judged") / "layers.py"
    path.write_text(MODULES)
    with Judge(find_environment("cuda"), deadline=60, rules=without({"decisions"})) as judge:

        def decide(name, text):
            live = load(path, name)
            candidate = render(Completion("files", 0, text, "kernel_module"), live, on_gpu=True)
            return judge.judge(candidate, Criteria(live, min_speedup=0.0))

        yield decide


@pytest.mark.parametrize("name, text", [("Large", LARGE), ("Softmax", SOFTMAX), ("Trained", TRAINED)])
def test_a_right_kernel_is_proven_for_its_domain(decide, name, text):
    verdict = decide(name, text)
    assert verdict.accepted, verdict.reason
    assert verdict.addresses is not None
    assert verdict.addresses.in_words() == "bounds and races and outputs proven for the domain", (
        verdict.addresses.why
    )
    assert verdict.addresses.seconds < 6
    assert verdict.timing  # after which addresses are followed


def test_a_read_past_the_end_of_67_million_elements_is_refused(decide):
    wrong = LARGE.replace("mask=mask, other=0.0", "mask=here < n + (n >= 67108864), other=0.0")
    wrong = wrong.replace("1024),)", "1024) + (x.numel() >= 67108864),)")
    verdict = decide("Large", wrong)
    assert verdict.verdict == "rejected"
    assert verdict.rule == "addresses", verdict.reason
    assert (
        "element 67,108,864 of `x_ptr`, which has 67,108,864 elements, in program (65536, 0, 0)"
        in verdict.reason
    )
