"""GELU and its like are written with fewer instructions, where that changes nothing."""

import ast

import pytest

from kernelllm_judge.render.inductor.identities import with_identities
from kernelllm_judge.render.inductor.tidy import tidy

KERNEL = """
def kernel(in_ptr0, out_ptr0, xnumel):
    x0 = tl.arange(0, 64)
    tmp0 = tl.load(in_ptr0 + x0)
{lines}
    tl.store(out_ptr0 + x0, {stored})
"""
TANH = [
    "tmp1 = 0.5",
    "tmp2 = tmp0 * tmp1",
    "tmp3 = libdevice.tanh(tmp0 * 0.79)",
    "tmp4 = 1.0",
    "tmp5 = tmp3 + tmp4",
]
ERF = [
    "tmp1 = 0.5",
    "tmp2 = tmp0 * tmp1",
    "tmp3 = 0.7071067811865476",
    "tmp4 = tmp0 * tmp3",
    "tmp5 = tl.erf(tmp4)",
    "tmp6 = tl.full([1], 1.0, tl.float32)",
    "tmp7 = tmp5 + tmp6",
]


def stored(lines, value, types=None):
    text = KERNEL.format(lines="\n".join(f"    {line}" for line in lines), stored=value)
    function = ast.parse(text).body[0]
    before = ast.unparse(function)
    result = tidy(with_identities(function, types or {}), {})
    assert ast.unparse(function) == before
    return ast.unparse(result)


def test_the_approximated_gelu_is_a_sigmoid():
    assert "out_ptr0 + x0, tmp0 * tl.sigmoid(2.0 * (tmp0 * 0.79)))" in stored(TANH, "tmp2 * tmp5")
    assert "tmp0 * tl.sigmoid(2.0 * (tmp0 * 0.79))" in stored(TANH, "tmp5 * tmp2")
    assert "tl.sigmoid(2.0 * (tmp0 * 0.79)) * tmp0" in stored([*TANH, "tmp6 = 0.5 * tmp5"], "tmp6 * tmp0")
    assert "2.0 * tl.sigmoid(2.0 * (tmp0 * 0.79))" in stored(TANH, "tmp5")


def test_gelu_is_the_normal_distribution():
    assert "tmp0 * normal_cdf(tmp0)" in stored(ERF, "tmp2 * tmp7")
    other = [line.replace("0.7071067811865476", "0.7") for line in ERF]
    assert "tmp0 * normal_cdf(1.4142135623730951 * (tmp0 * 0.7))" in stored(other, "tmp2 * tmp7")


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (TANH, "tmp2 * (tmp3 + 2.0)"),
        (TANH, "tmp2 * tmp3"),
        ([*TANH, "tmp6 = tmp3 * tmp3"], "tmp2 * tmp5 + tmp6"),  # the derivative needs tanh itself
        (ERF, "tmp0 * tmp7"),
        ([*ERF, "tmp8 = tmp5 * tmp2"], "tmp8 + tmp2 * tmp7"),
        ([*ERF[:5], "tmp4 = tmp4 * 3.0", *ERF[5:]], "tmp2 * tmp7 + tmp4"),  # what is read changes in between
        (["tmp0 = tl.load(in_ptr0)", *TANH, "tmp0 = tmp0 * 2.0"], "tmp2 * (tmp3 * 1.0)"),
        (["tmp1 = 0.5", *ERF[2:], "if xnumel > 3:", "    xnumel = 0.5"], "xnumel * tmp7"),
        ([line.replace("tl.erf(tmp4)", "tl.erf(x=tmp4)") for line in ERF], "tmp2 * tmp7"),
        (["tmp1 = 0.5", "for i in range(3):", "    tmp1 = tmp1 * 2.0", *TANH[1:]], "tmp2 * tmp5 * tmp3"),
    ],
)
def test_what_only_looks_like_it_stays(lines, value):
    text = stored(lines, value)
    assert not any(name in text for name in ("sigmoid", "normal_cdf"))


@pytest.mark.parametrize("load", ["tl.load(in_ptr0 + x0)", "tl.load(in_ptr0 + x0).to(tl.float64)"])
def test_float64_stays(load):
    types = {"in_ptr0": "*fp64" if load.endswith("x0)") else "*fp32", "out_ptr0": "*fp64", "xnumel": "i32"}
    lines = [f"tmp0 = {load}", *ERF, "tmp8 = libdevice.log1p(tmp7)"]
    text = stored(lines, "tmp2 * tmp8", types)
    assert "libdevice.log1p(tl.erf(tmp0 * 0.7071067811865476) + 1.0)" in text
