"""The rule ``types``: a kernel gives back the very types that callers of the original get."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelllm_judge.core.records import Completion, Verdict
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render
from kernelllm_judge.target.live import load_target
from pytest_kernelllm.discover.scan import scan_file

MODULES = """
import torch
from torch import nn
from pytest_kernelllm import triton_candidate


def rows():
    return torch.randn(4, 16)


@triton_candidate(inputs=rows, dims={})
class Named(nn.Module):
    def forward(self, x):
        return x.max(-1)


@triton_candidate(inputs=rows, dims={})
class Plain(nn.Module):
    def forward(self, x):
        values, indices = x.max(-1)
        return values, indices
"""

KERNEL = """
import torch
import triton
import triton.language as tl
from typing import NamedTuple


class max(NamedTuple):
    values: torch.Tensor
    indices: torch.Tensor


@triton.jit
def largest_kernel(x_ptr, values_ptr, indices_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row * WIDTH + columns)
    top = tl.max(x, 0)
    top = tl.where(tl.max((x != x).to(tl.int32), 0) != 0, float("nan"), top)
    best = tl.where(top != top, x != x, x == top)
    tl.store(values_ptr + row, top)
    tl.store(indices_ptr + row, tl.min(tl.where(best, columns, WIDTH), 0))


def forward(self, x):
    values = torch.empty(4, dtype=x.dtype, device=x.device)
    indices = torch.empty(4, dtype=torch.int64, device=x.device)
    largest_kernel[(4,)](x, values, indices, WIDTH=16)
    return RESULT
"""


@pytest.fixture(scope="module")
def decide(tmp_path_factory: pytest.TempPathFactory, judge: Judge) -> Callable[[str, str], Verdict]:
    path: Path = tmp_path_factory.mktemp("types") / "layers.py"
    path.write_text(MODULES)
    lives = {t.name: load_target(path.parent, t) for t in scan_file(path, path.parent).targets}

    def decide(name: str, result: str) -> Verdict:
        text = KERNEL.replace("RESULT", result)
        candidate = render(Completion("files", 0, text, "kernel_module"), lives[name])
        return judge.judge(candidate, Criteria(lives[name]))

    return decide


@pytest.mark.parametrize(
    ("name", "result"), [("Named", "torch.return_types.max((values, indices))"), ("Plain", "values, indices")]
)
def test_the_exact_type_is_accepted(decide: Callable[[str, str], Verdict], name: str, result: str) -> None:
    verdict = decide(name, result)
    assert verdict.accepted, verdict.reason


@pytest.mark.parametrize(
    ("name", "result", "reason"),
    [
        ("Named", "values, indices", "it returns tuple (.*, the original torch.return_types.max ("),
        ("Named", "[values, indices]", "it returns list (.*, the original torch.return_types.max ("),
        ("Named", "torch.return_types.min((values, indices))", "it returns torch.return_types.min ("),
        ("Named", "max(values, indices)", "it returns kernel_module.max ("),
        ("Plain", "torch.return_types.max((values, indices))", "it returns torch.return_types.max ("),
        ("Plain", "max(values, indices)", "it returns kernel_module.max ("),
    ],
)
def test_another_type_is_rejected(
    decide: Callable[[str, str], Verdict], name: str, result: str, reason: str
) -> None:
    verdict = decide(name, result)
    assert verdict.rule == "types"
    assert all(part in verdict.reason for part in reason.split(".*")), verdict.reason
