"""What no probe ran does not ship: in-memory judging of real kernels in Triton's interpreter."""

import re

import pytest
import torch
from one_judge import judged_by
from torch import nn

from kernelllm_judge.core.kernel_module import digest
from kernelllm_judge.deciding import _changes, _Tried
from kernelllm_judge.plans import Plan
from pytest_kernelllm import adopt

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def shift_kernel(x_ptr, out_ptr, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + by, i < n)


def forward(self, x):
    out, n = torch.empty_like(x), x.numel()
    shift_kernel[(triton.cdiv(n, 256),)](x, out, n, DECIDES, BLOCK=256)
    return out
"""


class Shift(nn.Module):
    def forward(self, x):
        return x + 2.0


def values(n: int = 300):
    return torch.randn(n)


@pytest.fixture
def judged(judge):
    def judged(decides, body=KERNEL):
        return judged_by(judge, Shift, body.replace("DECIDES", decides), values, {"n": (1, 4000)})

    return judged


@pytest.mark.parametrize(
    "decides",
    [
        "3.0 if str(n) == '1777' else 2.0",
        "3.0 if (n * n + 3 * n) % 99991 == 57702 else 2.0",  # at 1501 only
    ],
)
def test_where_a_decision_fell_one_way_only_the_original_runs_the_other_way(judged, decides):
    kernel = judged(decides)
    assert kernel.accepted and "_judged_if(" in kernel.source
    assert kernel.verdict.fence == "" and digest(kernel.source)
    with adopt(Shift, kernel):
        module = Shift()
        for n in (1, 1501, 1777, 3999):
            x = torch.randn(n)
            assert torch.equal(module(x), x + 2.0)


def test_a_size_at_which_it_decides_otherwise_is_found_and_tried(judged):
    kernel = judged("3.0 if str(n).endswith('177') else 2.0")
    assert (kernel.verdict.verdict, kernel.verdict.rule) == ("rejected", "decisions")
    assert "177" in kernel.verdict.reason


def test_a_number_that_is_another_one_at_one_size_is_found(judged):
    kernel = judged("2.0 + 0 ** abs(n - 1777)")
    assert (kernel.verdict.verdict, kernel.verdict.rule) == ("rejected", "decisions")
    assert "n=1777" in kernel.verdict.reason


def test_what_is_right_either_way_ships_as_it_is(judged):
    kernel = judged("2.0 if n > 100 else 1.0 + 1.0")
    assert kernel.accepted and "_judged" not in kernel.source


def test_where_an_exception_is_caught_the_original_cannot_run_instead(judged):
    body = KERNEL.replace(
        "    out, n =",
        "    by = 2.0\n    try:\n        if str(x.numel()) == '1777':\n            by = 3.0\n"
        "    except NotImplementedError:\n        by = 3.0\n    out, n =",
    )
    kernel = judged("by", body)
    assert kernel.verdict.verdict == "inconclusive"
    assert re.search(
        r"because an exception is caught there: line \d+: `str\(x.numel\(\)\) == '1777'` was never",
        kernel.verdict.reason,
    )


def test_a_program_that_is_missing_at_one_size_is_found(judged):
    kernel = judged("2.0", KERNEL.replace("triton.cdiv(n, 256)", "triton.cdiv(n, 256) - 0 ** abs(n - 1777)"))
    assert (kernel.verdict.verdict, kernel.verdict.rule) == ("rejected", "decisions")
    assert "n=1777" in kernel.verdict.reason


def test_a_candidate_may_not_report_what_it_decides(judged):
    body = KERNEL + "\n\ndef more(n):\n    return __kernelllm_decided__(0, 'value', n)\n"
    assert judged("2.0", body).verdict.verdict == "rejected"


def test_a_number_that_leaves_its_line_at_a_size_is_found_between_uneven_sizes():
    def tried(n, bent):
        return {"n": n}, _Tried(frozenset(), (n - (n == bent), -(-n // 4)))

    plan = Plan(None, (), (), {"n": (1, 100)}, {})
    even = [tried(n, 42) for n in (*range(1, 60), 80, 97)]
    assert {"n": 42} in _changes(even, plan)
    assert not [
        each for each in _changes([tried(n, 0) for n in (1, 2, 3, 4, 80, 97)], plan) if each["n"] > 80
    ]
