"""Sums of free sizes compute no place behind the end, and no length that they are given."""

import ast

import pytest

from kernelllm_judge.core.syntax import expression
from kernelllm_judge.render.inductor.split_sums import simplified

KERNEL = """
def kernel(in_ptr0, out_ptr0, ks0, ks1, xnumel, r0_numel):
    x0 = tl.program_id(0)
    r0_index = tl.arange(0, 64)
    r0_mask = r0_index < r0_numel
    tmp0 = r0_index + x0 * ((511 + ks0 * ks1) // 512)
    tmp1 = ks0 * ks1
    tmp2 = {condition}
    mask = r0_mask & tmp2
    tmp3 = tl.load(in_ptr0 + (r0_index + x0 * ((511 + ks0 * ks1) // 512)) % (ks0 * ks1), {mask}, other=0.0)
    tl.store(out_ptr0 + x0, tl.sum(tmp3, 0))
"""
LAUNCH = {"in_ptr0": "x", "out_ptr0": "buf0", "ks0": "s0", "ks1": "s1", "xnumel": "512"}


def changed(condition="tmp0 < tmp1", mask="mask", lengths=("(511 + s0 * s1) // 512",)):
    function = ast.parse(KERNEL.format(condition=condition, mask=mask)).body[0]
    launches = [{k: expression(v) for k, v in {**LAUNCH, "r0_numel": length}.items()} for length in lengths]
    before = ast.unparse(function)
    text = ast.unparse(simplified(function, launches))
    assert ast.unparse(function) == before
    return text


@pytest.mark.parametrize("mask", ["mask", "tmp2", "r0_mask & (tmp2 & r0_mask)", "tmp0 < tmp1"])
def test_a_place_that_the_mask_bounds_needs_no_remainder(mask):
    assert "tl.load(in_ptr0 + (r0_index + x0 * r0_numel), " in changed(mask=mask)


def test_places_are_compared_with_as_many_bits_as_they_need():
    assert "%" not in changed("tmp0.to(tl.int32) < tl.cast(tmp1, tl.int32)")


@pytest.mark.parametrize(
    ("condition", "mask"),
    [
        ("tmp0 < tmp1", "r0_mask"),
        ("tmp0 < tmp1", "None"),
        ("tmp0 < tmp1", "r0_mask | tmp2"),
        ("tmp0 <= tmp1", "mask"),
        ("tmp1 < tmp0", "mask"),
        ("tmp0 < ks0", "mask"),
        ("tmp0 + 1 < tmp1", "mask"),
        ("tmp0.to(tl.int8) < tmp1", "mask"),
    ],
)
def test_otherwise_the_remainder_stays(condition, mask):
    assert "% (ks0 * ks1)" in changed(condition, mask)


@pytest.mark.parametrize(
    "lengths",
    [
        ("64",),
        ("s0",),
        ("(511 + s1 * s0) // 512",),
        ("(511 + s0 * s2) // 512",),
        ("(511 + s0 * s1) // 512", "(511 + s0 * s1) // 256"),
        ("(511 + s0 * s1) // 512", "64"),
    ],
)
def test_a_length_is_only_replaced_where_every_launch_passes_it(lengths):
    text = changed(lengths=lengths)
    assert text.count("(511 + ks0 * ks1) // 512") == 2
    assert "%" not in text


@pytest.mark.parametrize(
    "lines",
    [
        [f"t{i + 1} = t{i} * t{i}" for i in range(60)],
        ["t60 = t59 + 1", "t59 = t60"],
        ["t60 = t60 + 1"],
        ["t60 = t59", "t59 = t60"],
        ["t60 = 1.5"],
    ],
)
def test_masks_from_long_or_circular_computations_end(lines):
    text = KERNEL.format(condition="tmp0 < tmp1", mask="mask & (t60 < 3)")
    body = "\n".join(f"    {line}" for line in lines)
    function = ast.parse(text.replace("    mask = ", f"{body}\n    mask = ")).body[0]
    assert "%" not in ast.unparse(simplified(function, []))


@pytest.mark.parametrize("lines", [["m60 = m60 & mask"], [f"m{i + 1} = m{i} & m{i}" for i in range(60)]])
def test_masks_of_masks_end(lines):
    text = KERNEL.format(condition="tmp0 < tmp1", mask="m60")
    body = "\n".join(f"    {line}" for line in ["m0 = mask", *lines])
    function = ast.parse(text.replace("    tmp3 = ", f"{body}\n    tmp3 = ")).body[0]
    assert "%" not in ast.unparse(simplified(function, []))
