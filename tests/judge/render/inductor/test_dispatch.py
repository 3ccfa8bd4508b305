"""How ``forward`` tells domains apart that need different texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernelllm_judge.core.parts import Parts
from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.inductor import sections
from kernelllm_judge.render.inductor.dispatch import Region, conditions
from kernelllm_judge.render.render import render
from kernelllm_judge.render.visible import visible
from kernelllm_judge.target.live import load_target
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request

PROJECT = """
import torch
from torch import nn

from pytest_kernelllm import triton_candidate


def long(rows=64):
    return torch.randn(rows, 32)


def short(rows=1):
    return torch.randn(rows, 32)


@triton_candidate(inputs={"long": long, "short": short}, dtypes=("float32", "bfloat16"), dims={"rows": (1, 64)})
class Norm(nn.Module):
    def forward(self, x):
        return x / (1 + x.abs().sum(-1, keepdim=True))
"""


def region(rows: int, dtype: str = "float32", name: str = "rows", most: int = 64) -> Region:
    return Region(
        {"self.weight": TensorSpec(dtype, (32,)), "x": TensorSpec(dtype, (name, 32))},
        {"rows": rows},
        {name: (1, most)},
    )


def test_the_same_domain_is_told_apart_by_how_large_inputs_are() -> None:
    assert conditions([[region(64)], [region(1)]]) == ["x.numel() > 256", "x.numel() <= 256"]
    assert conditions([[region(2)], [region(8), region(9)], [region(32)]]) == [
        "x.numel() <= 128",
        "x.numel() > 128 and x.numel() <= 543",
        "x.numel() > 543",
    ]


def test_a_text_for_the_smallest_and_the_largest_gets_both() -> None:
    assert conditions([[region(1), region(64)], [region(8)]]) == [
        "x.numel() <= 90 or x.numel() > 724",
        "x.numel() > 90 and x.numel() <= 724",
    ]


def test_dtypes_are_told_apart_first() -> None:
    assert conditions([[region(64), region(64, "bfloat16")], [region(1)], [region(2, "bfloat16")]]) == [
        "(x.dtype == torch.float32 and x.numel() > 256) or (x.dtype == torch.bfloat16 and x.numel() > 362)",
        "x.dtype == torch.float32 and x.numel() <= 256",
        "x.dtype == torch.bfloat16 and x.numel() <= 362",
    ]
    assert conditions([[region(64)], [region(1, "bfloat16")]]) == [
        "x.dtype == torch.float32",
        "x.dtype == torch.bfloat16",
    ]


def test_where_sizes_alone_tell_texts_apart_nothing_else_is_asked() -> None:
    groups = [[region(rows, dtype) for dtype in ("float32", "bfloat16")] for rows in (64, 1)]
    assert conditions(groups) == ["x.numel() > 256", "x.numel() <= 256"]


def test_a_text_is_not_chosen_for_sizes_outside_its_range() -> None:
    with pytest.raises(RenderError, match="nothing that forward sees tells them apart"):
        conditions([[region(1, most=4)], [region(64)]])


@pytest.mark.parametrize(
    "alike", [[region(64)] * 2, [region(64, name="columns")] * 2, [Region({}, {}, {})] * 2]
)
def test_what_nothing_tells_apart_is_refused(alike: list[Region]) -> None:
    with pytest.raises(RenderError, match="nothing that forward sees tells them apart"):
        conditions([[each] for each in alike])


@pytest.mark.slow
def test_cases_that_are_faster_with_other_blocks_get_them(tmp_path: Path) -> None:
    path = tmp_path / "norm.py"
    path.write_text(PROJECT)
    [target] = scan_file(path, tmp_path).targets
    live = load_target(tmp_path, target)
    [(_, completion)] = InductorGenerator().generate([Request(target, (0,), lambda: live)])
    chosen = [
        replace(each, launches={name: {**launch, "XBLOCK": 4} for name, launch in each.launches.items()})
        if each.case.sizes["rows"] == 64
        else each
        for each in sections.read(completion.text)
    ]
    candidate = render(replace(completion, text=sections.write(chosen)), live, on_gpu=False)
    assert "if x.numel() > 256:" in candidate.source
    assert candidate.source.count("@triton.jit") == 2
    with Judge(find_environment("cpu")) as judge:
        verdict = judge.judge(candidate, Criteria(live))
    assert verdict.verdict == "accepted", verdict.reason


def test_what_an_argument_holds_is_told_by_type_and_length_before_its_parts_are_read() -> None:
    row = TensorSpec("float32", ("n", 8))
    inputs = [
        {"x.__class__": "list", "x[0]": row, "x[1]": row, "x[2]": row},
        {"x.__class__": "list", "x[0]": row, "x[1]": row},
        {"x[0]": row, "x[1]": TensorSpec("float16", ("n", 8))},
        {"x[0]": row, "x[1]": row},
        {"x['a']": row},
        {"x": row},
        {"x": None},
    ]
    domains = [Domain(given, {}, {"n": (1, 4)}) for given in inputs]
    groups = [[Region(visible(each, Parts()), {"n": 2}, each.dims)] for each in domains]
    assert conditions(groups) == [
        "isinstance(x, list) and len(x) == 3",
        "isinstance(x, list) and len(x) == 2",
        "isinstance(x, tuple) and x[1].dtype == torch.float16",
        "isinstance(x, tuple) and x[1].dtype == torch.float32",
        "isinstance(x, dict)",
        "isinstance(x, torch.Tensor)",
        "x is None",
    ]
