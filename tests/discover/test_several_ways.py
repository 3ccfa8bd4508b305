"""Several ways to build one class: given by ``cases``, or by several markers in a file."""

import importlib
import sys

import pytest
import torch

from kernelllm_judge.target.errors import TargetError
from kernelllm_judge.target.live import load_target
from kernelllm_runtime.marker import OPTIONS_ATTRIBUTE, triton_candidate
from pytest_kernelllm.discover.scan import scan_file

CLASS = """
import torch
from dataclasses import dataclass
from torch import nn
from pytest_kernelllm import triton_candidate


class Scale(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.ones(width)) if bias else None

    def forward(self, x):
        y = x * self.weight
        return y if self.bias is None else y + self.bias


def narrow(batch=4):
    return torch.randn(batch, 8)


def wide(batch=4):
    return torch.randn(batch, 24)
"""
CASES = """
triton_candidate(
    Scale,
    cases={
        "narrow": {"init": (8,), "inputs": narrow},
        "wide": {"init": (24, False), "inputs": {"default": wide, "again": wide}, "dims": {"batch": (1, 5)}},
    },
    dims={"batch": (1, 8)},
)
"""
TWICE = """
triton_candidate(Scale, init=(8,), inputs=narrow, dims={"batch": (1, 8)})
triton_candidate(Scale, init=(24, False), inputs=wide, dims={"batch": (1, 5)})
"""


@pytest.fixture
def live(tmp_path):
    def make(marker, name):
        (tmp_path / f"{name}.py").write_text(CLASS + marker)
        (target,) = scan_file(tmp_path / f"{name}.py", tmp_path).targets
        return load_target(tmp_path, target)

    yield make
    for name in [name for name in sys.modules if name.startswith("ways_")]:
        del sys.modules[name]


def test_each_way_has_cases_of_its_own(live) -> None:
    found = live(CASES, "ways_cases")
    assert found.target.id == "ways_cases.py::Scale"
    assert [case.name for case in found.cases] == ["narrow", "wide", "wide-again"]
    assert [case.domain.dims for case in found.cases] == [
        {"batch": (1, 8)},
        {"batch": (1, 5)},
        {"batch": (1, 5)},
    ]
    narrow, wide, _ = found.cases
    assert narrow.domain.attributes["weight"].shape == (8,) and wide.domain.attributes["bias"] is None
    assert found.build(narrow).weight.shape == (8,) and found.build(wide).bias is None
    assert found.inputs(wide, 0).args[0].shape == (4, 24)
    assert found.init_arguments(wide).args == (24, False)


def test_a_second_marker_adds_a_way(live) -> None:
    found = live(TWICE, "ways_twice")
    assert [case.name for case in found.cases] == ["default", "way_2"]
    assert [found.build(case).weight.shape for case in found.cases] == [(8,), (24,)]


def test_decorators_are_ways_in_the_order_of_their_lines(live) -> None:
    marker = TWICE.replace("triton_candidate(Scale, ", "@triton_candidate(") + "class Other(Scale): ...\n"
    found = live(marker, "ways_decorated")
    assert [found.build(case).weight.shape for case in found.cases] == [(8,), (24,)]


def test_a_file_that_runs_again_has_its_marks_once(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ways_kept.py").write_text(CLASS)
    (tmp_path / "ways_again.py").write_text(f"from ways_kept import *\n{TWICE}")
    import ways_again
    import ways_kept

    for _ in range(2):
        assert len(getattr(ways_kept.Scale, OPTIONS_ATTRIBUTE).ways) == 2
        importlib.reload(ways_again)


def test_a_change_of_either_marker_changes_the_source_hash(tmp_path) -> None:
    def hashed(text):
        (tmp_path / "ways_hashed.py").write_text(CLASS + text)
        (target,) = scan_file(tmp_path / "ways_hashed.py", tmp_path).targets
        return target.source_hash

    before = hashed(TWICE)
    assert (
        before != hashed(TWICE.replace("(8,)", "(9,)")) != hashed(TWICE.replace("(24, False)", "(24, True)"))
    )
    second = TWICE.replace("(1, 5)})", '(1, 5)}, kernel="k")')
    assert before == hashed(second)


DATACLASSES = """
@dataclass
class One:
    y: torch.Tensor

class Chosen(nn.Module):
    def __init__(self, plain):
        super().__init__()
        self.plain = plain
    def forward(self, x):
        return x * 2 if self.plain else One(x * 2)

triton_candidate(Chosen, cases={"a": {"init": (False,)}, "b": {"init": (PLAIN,)}}, inputs=narrow)
"""


def test_a_dataclass_is_named_in_the_domain(live) -> None:
    found = live(DATACLASSES.replace("PLAIN", "False"), "ways_returned")
    assert {case.domain.returns for case in found.cases} == {"ways_returned:One"}
    assert set(found.build(found.cases[0])(torch.ones(2, 8))) == {"y"}


def test_what_cannot_be_one_kernel_is_one_sentence(live) -> None:
    with pytest.raises(TargetError, match=r"Chosen: forward returns a .* in some cases only\.$"):
        live(DATACLASSES.replace("PLAIN", "True"), "ways_mixed")
    with pytest.raises(TargetError, match=r"Scale has no inputs in case wide; write"):
        live('triton_candidate(Scale, cases={"wide": {"init": (24,)}})', "ways_empty")


@pytest.mark.parametrize(
    ("cases", "sentence"),
    [
        ([1], "must be a mapping"),
        ({"a": 1}, "must be a mapping of names to dicts"),
        ({"a": {"dtypes": ()}}, "has 'dtypes'; it takes init, inputs, dims"),
        ({"a": {"dims": {"n": 3}}}, "must be"),
    ],
)
def test_cases_of_another_form_are_refused(cases, sentence) -> None:
    with pytest.raises(TypeError, match=sentence):
        triton_candidate(torch.nn.ReLU, cases=cases)


def test_markers_of_one_class_agree_on_what_counts_for_all_ways(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ways_differ.py").write_text(CLASS + TWICE.replace("(24, False)", "(24,), tolerance=0.1"))
    with pytest.raises(TypeError, match="the markers of Scale differ in `tolerance`; write it in both"):
        import ways_differ  # noqa: F401
