"""Attributes that a marker calls unread: the check that they are, and kernels that run whatever they are."""

from pathlib import Path

import pytest

from pytest_kernelllm.discover.errors import TargetError
from pytest_kernelllm.discover.live import LiveTarget, load_target
from pytest_kernelllm.discover.scan import scan_file

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
        ({"line": "x = x + self.number"}, r"a\.py: Outer: forward reads inner\.number; take it out of"),
        ({"line": "x = x + getattr(self, 'number')"}, r"forward reads inner\.number"),
        ({"line": "hasattr(self, 'number')"}, r"forward reads inner\.number"),
        (
            {"line": "x = x if len(x) < 8 else x + self.number", "inputs": "torch.randn(2 * n + 2, 4)"},
            "reads",
        ),
        ({"line": "x = x if len(x) > 1 else x + self.number"}, "reads"),
        ({"line": "x = x + self.number if x.sum() > 1e9 else x"}, "does not run without data"),
        ({"unread": "('inner.other',)"}, r"unread names 'inner\.other', which is no plain attribute"),
        ({"unread": "('outer.number',)"}, "no plain attribute"),
        ({"unread": "('inner.kept',)"}, "no plain attribute"),
        ({"unread": "'inner.number'"}, r"`unread` must be a sequence of names, e\.g\. \('inner\.number',\)"),
    ],
)
def test_what_is_read_or_cannot_be_told_is_an_error(
    tmp_path: Path, given: dict[str, str], reason: str
) -> None:
    with pytest.raises(TargetError, match=reason):
        loaded(tmp_path, **given)


def test_the_classes_are_as_before_the_check(tmp_path: Path) -> None:
    live = loaded(tmp_path)
    module = live.build(live.cases[0])
    assert type(module.inner).__qualname__ == "Inner" and "__getattribute__" not in vars(type(module.inner))
