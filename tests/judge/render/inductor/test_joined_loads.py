"""Loads that exclude each other are one, unless more is read of them than what is chosen."""

import ast

import pytest

from kernelllm_judge.render.inductor.joined_loads import with_joined_loads
from kernelllm_judge.render.inductor.tidy import tidy

KERNEL = """
def kernel(in_ptr0, in_ptr1, out_ptr0, xnumel):
    xindex = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    xmask = xindex < xnumel
    x0 = xindex % 64
    x1 = xindex // 64
    x3 = tl.arange(0, 4)[:, None]
    tmp1 = x0.to(tl.int32)
    tmp2 = tl.full([1], 32, tl.int64)
    tmp3 = x0.to(tl.int64).to(tl.int64) < tmp2
    tmp4 = tl.load(in_ptr0 + (32 + 64 * x1 + x0), tmp3 & xmask, other=0.0).to(tl.float32)
    tmp5 = -tmp4
    tmp6 = tl.where(tmp3, tmp5, tl.full(tmp5.shape, 0.0, tmp5.dtype))
    tmp7 = tmp1 >= tmp2
    x2 = x0 - 32
    tmp8 = tl.load(in_ptr0 + (64 * x1 + (-32 + x0)), tmp7 & xmask, other=0.0).to(tl.float32)
    tmp9 = tl.where(tmp3, tmp6, tmp8)
    tl.store(out_ptr0 + xindex, tmp9, xmask)
"""

INDEX = ("x0.to(tl.int64).to(tl.int64)", "tmp1")


def changed(*replacements: tuple[str, str]) -> str:
    text = KERNEL
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    before = ast.unparse(function)
    found = with_joined_loads(function)
    assert ast.unparse(function) == before
    return ast.unparse(tidy(found))


def test_halves_that_are_swapped_are_loaded_once():
    text = changed()
    address = "in_ptr0 + tl.where(tmp3, 32 + 64 * x1 + x0, 64 * x1 + (-32 + x0))"
    assert f"tmp4 = tl.load({address}, xmask, other=0.0).to(tl.float32)\n" in text
    assert text.endswith("tl.store(out_ptr0 + xindex, tl.where(tmp3, -tmp4, tmp4), xmask)")
    assert text.count("tl.load") == 1


def test_where_nothing_else_is_masked_there_is_no_mask():
    text = changed((" & xmask", ""), (", xmask)", ")"))
    assert "64 * x1 + (-32 + x0))).to(tl.float32)\n" in text


def test_the_conditions_may_come_in_the_other_order():
    text = changed((".to(tl.int64) < tmp2", ".to(tl.int64) >= tmp2"), ("tmp1 >= tmp2", "tmp1 < tmp2"))
    assert text.count("tl.load") == 1


def test_what_else_the_mask_asks_is_asked_as_before():
    text = changed(("& xmask, other", "& (xmask | (x1 == 3)) & (x1 < 60), other"))
    assert "x0)), (xmask | (x1 == 3)) & (x1 < 60), other=0.0)" in text


def test_a_choice_of_other_numbers_than_zeros_stays():
    other = ("tl.full(tmp5.shape, 0.0, tmp5.dtype)", "tl.full([1], 0.0, tl.float64)")
    text = changed(other)
    assert text.count("tl.load") == 1
    assert "tl.where(tmp3, tl.where(tmp3, -tmp4, tl.full([1], 0.0, tl.float64)), tmp4)" in text


def test_what_is_computed_of_them_first_may_be_chosen_by_either_condition():
    text = changed(
        ("tmp5 = -tmp4", "tmp5 = (tmp4 * 2 + tmp1).to(tl.bfloat16)"),
        ("tmp9 = ", "tmp10 = tl.where(tmp7, tmp8, 0.0)\n    tmp9 = "),
        ("tmp6, tmp8)", "tmp6, tmp10)"),
    )
    assert text.count("tl.load") == 1


CONDITIONS = {
    "not all": [("tmp1 >= tmp2", "tmp1 > tmp2")],
    "the same": [("tmp1 >= tmp2", "tmp1 < tmp2")],
    "another bound": [("tmp1 >= tmp2", "tmp1 >= 33")],
    "another index": [("tmp1 = x0", "tmp1 = x1")],
    "loaded": [INDEX, ("tmp1 = x0.to(tl.int32)", "tmp1 = tl.load(in_ptr1 + x0)")],
    "perhaps NaN": [INDEX, ("tmp1 = x0.to(tl.int32)", "tmp1 = tl.sqrt(x0 - 9)")],
    "a quotient": [INDEX, ("tmp1 = x0.to(tl.int32)", "tmp1 = x0 / 2")],
    "rounded": [("tmp1 = x0.to(tl.int32)", "tmp1 = x0 * 0.5"), ("x0.to(tl.int64)", "tmp1.to(tl.int32)")],
    "an index that changes": [("    tmp7 = ", "    x0 = x0 + 1\n    tmp7 = ")],
    "a value that changes": [("    tmp7 = ", "    tmp1 = tmp1 + 1\n    tmp7 = ")],
}


@pytest.mark.parametrize("replacements", CONDITIONS.values(), ids=CONDITIONS)
def test_conditions_that_do_not_exclude_each_other_stay(replacements):
    assert changed(*replacements).count("other=0.0") == 2


CHOSEN = "tmp9 = tl.where(tmp3, tmp6, tmp8)"
READ = {
    "the first": ("tmp9, xmask)", "tmp9 + tmp4, xmask)"),
    "the second": ("tmp9, xmask)", "tmp9 + tmp8, xmask)"),
    "summed": ("tmp9, xmask)", "tl.sum(tmp5) + tmp9, xmask)"),
    "running": ("tmp5 = -tmp4", "tmp5 = tl.cumsum(tmp4, 0)"),
    "exchanged": (CHOSEN, "tmp9 = tl.where(tmp3, tmp8, tmp6)"),
    "another condition": (CHOSEN, "tmp9 = tl.where(xmask, tmp6, tmp8)"),
    "the opposite": (CHOSEN, "tmp9 = tl.where(tmp7, tmp6, tmp8)"),
    "a sum": (CHOSEN, "tmp9 = tl.where(tmp3, tl.sum(tmp4, 0), tmp8)"),
    "the largest": (CHOSEN, "tmp9 = tl.where(tmp3, tmp6, tmp8 / tl.max(tmp8, 0))"),
    "another shape": (CHOSEN, "tmp9 = tl.where(tmp3, tmp5[:, None], tmp8)"),
    "a load": (CHOSEN, "tmp9 = tl.where(tmp3, tl.load(in_ptr1 + tmp4), tmp8)"),
    "an address": ("xindex, tmp9, xmask", "tmp8.to(tl.int32), tmp9, xmask"),
}


@pytest.mark.parametrize("replacement", READ.values(), ids=READ)
def test_what_is_read_elsewhere_is_loaded_by_itself(replacement):
    assert changed(replacement).count("other=0.0") == 2


OTHERS = {
    "another tensor": ("in_ptr0 + (64 *", "in_ptr1 + (64 *"),
    "another mask": ("(-32 + x0)), tmp7 & xmask", "(-32 + x0)), tmp7"),
    "another policy": ("tmp7 & xmask, other=0.0", "tmp7 & xmask, other=0.0, eviction_policy='evict_last'"),
    "an index that comes later": ("(-32 + x0)", "x2"),
    "another shape": ("in_ptr0 + (64 * x1 + (-32 + x0))", "in_ptr0 + 64 * x3"),
    "written in place": ("tl.store(out_ptr0", "tl.store(in_ptr0"),
    "two names": ("    tmp7 = ", "    q = in_ptr0\n    tl.store(q + xindex, tmp6, xmask)\n    tmp7 = "),
    "a mask that changes": ("    tmp7 = ", "    xmask = xmask & (x1 < 5)\n    tmp7 = "),
    "a pointer that changes": ("    tmp7 = ", "    in_ptr0 = in_ptr1\n    tmp7 = "),
    "a loop": ("    tl.store", "    for _ in range(2):\n        tmp9 += 1\n    tl.store"),
    "a circle": ("    tmp9 = ", "    tmp8 = tmp8 + tmp9\n    tmp9 = "),
}


@pytest.mark.parametrize("replacement", OTHERS.values(), ids=OTHERS)
def test_loads_that_differ_in_more_stay_two(replacement):
    assert changed(replacement).count("other=0.0") == 2
