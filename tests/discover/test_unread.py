"""Attributes that a marker calls unread: the check that they are, and kernels that run whatever they are."""

from pathlib import Path

import pytest

from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render
from kernelllm_judge.target.errors import TargetError
from kernelllm_judge.target.live import LiveTarget, load_target
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request

MODULE = """
import torch
from torch import nn

from pytest_kernelllm import triton_candidate


class Inner(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number
        self.scale = 2.0
        self.kept = []

    def forward(self, x, cache=None):
        if cache is not None:
            return cache[self.number]
        {line}
        return x * self.scale


@triton_candidate(inputs=lambda n=3: {inputs}, init=(4,), dims={{"n": (1, 8)}}, unread={unread})
class Outer(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.inner = Inner(number)

    def forward(self, x, cache=None):
        return self.inner(x, cache) + 1
"""


def loaded(
    tmp_path: Path, line: str = "", inputs: str = "torch.randn(n, 4)", unread: str = "('inner.number',)"
) -> LiveTarget:
    (tmp_path / "a.py").write_text(MODULE.format(line=line, inputs=inputs, unread=unread))
    [target] = scan_file(tmp_path / "a.py", tmp_path).targets
    return load_target(tmp_path, target)


def test_an_unread_attribute_is_not_part_of_the_domain(tmp_path: Path) -> None:
    [case] = loaded(tmp_path).cases
    assert case.domain.attributes["inner.scale"] == 2.0
    assert not any("number" in name for name in case.domain.attributes)


def test_without_the_word_it_is(tmp_path: Path) -> None:
    [case] = loaded(tmp_path, unread="()").cases
    assert case.domain.attributes["inner.number"] == 4


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"line": "x = x + self.number"},
            r"a\.py: Outer: forward reads inner\.number, or fails without it: Attr",
        ),
        ({"line": "x = x + getattr(self, 'number')"}, r"forward reads inner\.number, or fails"),
        ({"line": "x = x + vars(self)['number']"}, "or fails without it: KeyError"),
        ({"line": "x = x + super().__getattribute__('number')"}, "or fails without it"),
        ({"line": "x = x + self.number if x.sum() < 1e9 else x"}, "or fails without it"),
        ({"line": "x = x if x.is_meta else x + self.number"}, "or fails without it"),
        ({"line": "x = x + self.number if type(self) is Inner else x"}, "or fails without it"),
        (
            {"unread": "('inner.other',)"},
            r"unread names 'inner\.other', which is no attribute .* whole number",
        ),
        ({"unread": "('inner.scale',)"}, "whole number"),
        ({"unread": "('outer.number',)"}, "whole number"),
        ({"unread": "'inner.number'"}, r"`unread` must be a sequence of names, not 'inner\.number'"),
        (
            {"unread": "['inner.number', 3]"},
            r"`unread` must be a sequence of names, not \['inner\.number', 3\]",
        ),
    ],
)
def test_what_is_read_is_an_error(tmp_path: Path, given: dict[str, str], reason: str) -> None:
    with pytest.raises(TargetError, match=reason):
        loaded(tmp_path, **given)


@pytest.mark.parametrize(
    ("line", "accepted"),
    [
        ("", True),
        ("x = x + self.__dict__.get('number', 0)", False),
        ("x = x + getattr(self, 'number', 0)", False),
    ],
)
def test_kernels_are_judged_with_other_values(
    tmp_path: Path, judge: Judge, line: str, accepted: bool
) -> None:
    live = loaded(tmp_path, line=line)
    [(_, written)] = InductorGenerator().generate([Request(live.target, (0,), lambda: live)])
    verdict = judge.judge(render(written, live), Criteria(live, timing=False))
    assert verdict.accepted is accepted, verdict.reason
