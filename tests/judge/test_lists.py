"""Lists of tensors among the arguments of a call: a kernel for them is judged leaf by leaf, and leaves them as they are."""

import pytest

from kernelllm_judge.candidate import Speed
from kernelllm_judge.tool.warm import WarmJudge

REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, features, more):
        return [x.tanh() for x in features], more["last"][0] + features[0]


def get_inputs():
    return [[torch.randn(8, 16), torch.randn(4, 48)], {"last": [torch.randn(8, 16)], "none": []}]


def get_init_inputs():
    return []
"""

KERNEL = """
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def tanh_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, libdevice.tanh(tl.load(x_ptr + i, i < n)), i < n)


@triton.jit
def sum_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + tl.load(y_ptr + i, i < n), i < n)


def tanh(x):
    out = torch.empty_like(x)
    tanh_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


def forward(self, features, more):
    out = torch.empty_like(features[0])
    sum_kernel[(1,)](features[0], more["last"][0], out, out.numel(), BLOCK=128)
    return [tanh(x) for x in features], out
"""

HELD = ("surroundings", "what its arguments hold")
WRONG = {
    "a part replaced": ("features[1] = features[1] + 0", *HELD),
    "the order turned": ("features.reverse()", *HELD),
    "a list in a dict emptied": ("del more['last'][0]", *HELD),
    "a part changed in place": ("features[1].zero_()", "inputs kept", "its input `features[1]`"),
    "a part of a list in a dict changed": (
        "more['last'][0].zero_()",
        "inputs kept",
        "its input `more['last'][0]`",
    ),
    "an output missing": ("return [tanh(features[0])], out", "types", "it returns tuple"),
    "a tuple for a list": ("return (tanh(features[0]), tanh(features[1])), out", "types", "it returns tuple"),
    "a part not read": ("return [tanh(features[0]), tanh(features[1] * 0)], out", "values", "output 1"),
}


@pytest.fixture(scope="module")
def judge():
    with WarmJudge("cpu") as opened:
        yield opened


def judged(judge, folder, kernel, reference=REFERENCE):
    file = folder / "reference.py"
    file.write_text(reference)
    return judge.judge(str(file), kernel, Speed(timing=False), None).verdict


def test_a_right_kernel_is_accepted(judge, tmp_path):
    assert judged(judge, tmp_path, KERNEL).in_words() == "accepted"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_rejected_with_the_leaf(judge, tmp_path, name):
    line, rule, reason = WRONG[name]
    last = "    return [tanh(x) for x in features], out\n"
    assert last in KERNEL
    kernel = KERNEL.replace(
        last, f"    results = [tanh(x) for x in features], out\n    {line}\n    return results\n"
    )
    verdict = judged(judge, tmp_path, kernel)
    assert (verdict.verdict, verdict.rule) == ("rejected", rule) and reason in verdict.reason, verdict.reason


def test_nan_of_one_part_alone_is_planted(judge, tmp_path):
    hidden = "y = tl.load(y_ptr + i, i < n)\n    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + tl.where(y == y, y, 0.0)"
    kernel = KERNEL.replace(
        "tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + tl.load(y_ptr + i, i < n)", hidden
    )
    verdict = judged(judge, tmp_path, kernel)
    assert (verdict.verdict, verdict.rule) == ("rejected", "nonfinite"), verdict.reason
    assert "`more['last'][0]`" in verdict.reason, verdict.reason


@pytest.mark.parametrize(
    ("line", "leaf"),
    [
        ("features.pop()", "features[1]"),
        ("features[0] = features[0] * 2", "features[0]"),
        ("features[1] += 1", "features[1]"),
        ("more['none'].append(features[0])", "more['none'][0]"),
        ("more['last'] = tuple(more['last'])", "more['last'].__class__"),
    ],
)
def test_an_original_that_changes_what_a_list_or_dict_holds_is_not_judged(judge, tmp_path, line, leaf):
    reference = REFERENCE.replace(
        "        return [x", f"        y = more['last'][0]\n        {line}\n        return [x"
    )
    verdict = judged(judge, tmp_path, KERNEL, reference)
    assert verdict.verdict == "inconclusive"
    assert f"the original changes its input `{leaf}`" in verdict.reason, verdict.reason
