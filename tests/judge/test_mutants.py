"""What no probe tells from its mutant does not ship: in-memory judging of real kernels in Triton's interpreter."""

import pytest
import torch
from one_judge import judged_by
from torch import nn

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, i < n, other=0.0)
    y = x * 3.0
    EDIT
    tl.store(out_ptr + i, y, i < n)


def forward(self, x):
    out, n = torch.empty_like(x), x.numel()
    scale_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    return out
"""


class Scale(nn.Module):
    def forward(self, x):
        return x * 3.0


def values(n: int = 300):
    return torch.randn(n)


@pytest.fixture
def judged(judge):
    return lambda edit: (
        judged_by(judge, Scale, KERNEL.replace("EDIT", edit), values, {"n": (1, 4000)}).verdict
    )


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        ("y = y + tl.exp(-0.01 * (n - 1777.0) * (n - 1777.0)) * 1e-3", "tl.exp("),
        ("y = y + 0.0 * (1.0 / (x - 1234.5))", "1234.5"),  # NaN for one number
        ("y = y + 1e-9", "without its constant"),
        ("y = y + 1e-12 / (tl.abs(x) + 1e-3)", "1e-12"),
    ],
)
def test_a_term_that_no_probe_shows_is_undecided_and_named(judged, edit, named):
    verdict = judged(edit)
    assert (verdict.verdict, verdict.stage) == ("inconclusive", "correctness"), verdict.reason
    assert named in verdict.reason


@pytest.mark.parametrize(
    "edit",
    [
        "pass",
        "y = y + 1.0 - 1.0 * 1.0",
        "y = tl.where(tl.abs(x - tl.floor(x)) == 0, x * 3.0, y)",  # of what is compared alone, outcomes are seen
    ],
)
def test_what_matters_or_only_decides_is_accepted(judged, edit):
    verdict = judged(edit)
    assert verdict.accepted, verdict.reason


@pytest.mark.parametrize(
    "edit",
    [
        "y = tl.where((x > 8.0) & (x < 50.0), 0.0, y)",  # which a row with numbers up to 1e20 hides
        "y = tl.where(((x > 10.0).to(tl.int32) ^ (x > 10.0001).to(tl.int32)) == 1, 0.0, y)",
        "y = tl.where(tl.max((x > 8.0).to(tl.int32), 0) + tl.max((x > 50.0).to(tl.int32), 0) == 1, 0.0, y)",
        "y = tl.where(tl.sum((x > 3.0).to(tl.int32), 0) == 7, 0.0, y)",
    ],
)
def test_a_band_of_numbers_is_not_accepted_unseen(judged, edit):
    assert not judged(edit).accepted


def test_what_a_kernel_states_of_its_numbers_is_so(judged):
    verdict = judged("i = tl.multiple_of(i, 512)")
    assert verdict.verdict == "inconclusive"
    assert "tl.multiple_of states that" in verdict.reason


ROWS = """
import torch
import triton
import triton.language as tl


@triton.jit
def rows_kernel(x_ptr, w_ptr, out_ptr, count, D: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, D)
    i = tl.load(x_ptr + row)
    end = i + count
    i = tl.where(i < 0, end, i)
    tl.store(out_ptr + row * D + c, tl.load(w_ptr + i * D + c))


def forward(self, x):
    out = torch.empty((x.shape[0], 16), dtype=self.weight.dtype, device=x.device)
    rows_kernel[(x.shape[0],)](x, self.weight, out, 40, D=16)
    return out
"""


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(40, 16))

    def forward(self, x):
        return nn.functional.embedding(x, self.weight)


def test_an_index_may_count_from_the_end_where_the_original_accepts_none_below_0(judge):
    verdict = judged_by(judge, Rows, ROWS, lambda n=9: torch.randint(40, (n,)), {"n": (1, 99)}).verdict
    assert verdict.accepted, verdict.reason


EITHER_WAY = """
import torch
import triton
import triton.language as tl


@triton.jit
def flag_kernel(x_ptr, flag_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, i < n, other=0.0)
    tl.store(flag_ptr + tl.program_id(0), FLAG)


@triton.jit
def scale_kernel(x_ptr, flag_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, i < n, other=0.0)
    y = tl.where(tl.load(flag_ptr + tl.program_id(0)) != 0, x * 3.0, x + x + x)
    tl.store(out_ptr + i, y, i < n)


def forward(self, x):
    out, n = torch.empty_like(x), x.numel()
    flags = torch.empty(triton.cdiv(n, 256), dtype=torch.int8, device=x.device)
    flag_kernel[(triton.cdiv(n, 256),)](x, flags, n, BLOCK=256)
    scale_kernel[(triton.cdiv(n, 256),)](x, flags, out, n, BLOCK=256)
    return out
"""


@pytest.mark.parametrize(
    ("flag", "accepted"),
    [
        ("tl.max((x > 1.0).to(tl.int8), 0)", True),
        ("tl.sum((x > 1.0).to(tl.int32), 0)", False),  # a number, of which nothing shows that it is right
    ],
)
def test_a_stored_truth_value_only_decides_and_a_count_does_not(judge, flag, accepted):
    verdict = judged_by(judge, Scale, EITHER_WAY.replace("FLAG", flag), values, {"n": (1, 4000)}).verdict
    assert verdict.accepted == accepted, verdict.reason
