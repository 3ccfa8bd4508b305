"""Sizes that only bound rows need no kernel of their own; those that are a stride do."""

import ast

import pytest

from kernelllm_judge.render.inductor.unspecialized import unspecialized

KERNEL = """
def kernel(a_ptr, b_ptr, out_ptr, batch, seq, width):
    BLOCK_M: tl.constexpr = 64
    M = batch * seq
    N = 48
    {more}
    if M * N == 0:
        return
    group = min((M + BLOCK_M - 1) // BLOCK_M - tl.program_id(1) * 8, 8)
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    a = tl.load(a_ptr + (1024 * (rm % M) + {offset}))
    {load}
    tl.store(out_ptr + (rm * 48 + {offset}), a, (rm < M) & (rm < width))
"""


@pytest.mark.parametrize(
    ("more", "offset", "free"),
    [
        ("pass", "0", ["batch", "seq", "width"]),
        ("pass", "rm * width", ["batch", "seq"]),
        ("pass", "M * rm", ["width"]),
        ("stride = batch * width", "rm * stride", ["seq"]),
        ("stride = batch * width", "rm + stride", ["seq"]),
        ("stride = M + 1\n    other = stride - 1", "other * rm", ["width"]),
        ("pass", "(rm + seq) * 4", ["batch", "width"]),
    ],
)
def test_what_is_part_of_an_offset_is_specialized(more, offset, free):
    function = ast.parse(KERNEL.format(more=more, offset=offset, load="pass")).body[0]
    before = ast.unparse(function)
    assert unspecialized(function, ["batch", "seq", "width"]) == free
    assert ast.unparse(function) == before


@pytest.mark.parametrize(
    ("load", "free"),
    [
        ("c = tl.load(c_ptr + (idx_n + 48 * idx_m), idx_m < M)", ["batch", "seq", "width"]),
        ("c = tl.load(c_ptr + tl.broadcast_to(idx_m, [64, 64]), idx_m < M)", ["width"]),
        ("mask = idx_m < width\n    c = tl.load(c_ptr + tl.broadcast_to(idx_m, [64, 64]), mask)", ["batch", "seq"]),
        ("place = idx_n + 48 * idx_m\n    c = tl.load(c_ptr + place % (48 * seq), idx_m < M)", ["batch", "width"]),
    ],
)  # fmt: skip
def test_what_is_loaded_by_rows_or_again_and_again_is_specialized(load, free):
    function = ast.parse(KERNEL.format(more="pass", offset="0", load=load)).body[0]
    assert unspecialized(function, ["batch", "seq", "width"]) == free
