"""Which kernels count in 32 bits, though Inductor wrote them with 64."""

from __future__ import annotations

import ast

from kernelllm_judge.render.inductor.int64_offsets import with_int32_offsets

KERNEL = """
def pooling(in_ptr0, out_ptr0, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0).to(tl.int64) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None].to(tl.int64)
    r0_index = tl.arange(0, R0_BLOCK)[None, :].to(tl.int64)
    tmp0 = (2 * xindex).to(tl.int64)
"""


def function(parameters: str = "in_ptr0, out_ptr0") -> ast.FunctionDef:
    parsed = ast.parse(KERNEL.replace("in_ptr0, out_ptr0", parameters)).body[0]
    assert isinstance(parsed, ast.FunctionDef)
    return parsed


def test_indices_of_small_tensors_have_32_bits() -> None:
    text = ast.unparse(with_int32_offsets(function(), {"xnumel": 122023936, "r0_numel": 27}))
    assert "xindex = xoffset + tl.arange(0, XBLOCK)[:, None]\n" in text
    assert "xoffset = tl.program_id(0) * XBLOCK\n" in text
    assert "r0_index = tl.arange(0, R0_BLOCK)[None, :]\n" in text


def test_values_keep_their_type() -> None:
    assert "(2 * xindex).to(tl.int64)" in ast.unparse(with_int32_offsets(function(), {"xnumel": 64}))


def test_more_rows_than_32_bits_count_keep_64() -> None:
    kernel = function()
    assert with_int32_offsets(kernel, {"xnumel": (1 << 31) - 1}) is kernel


def test_a_size_that_comes_with_the_launch_keeps_64() -> None:
    kernel = function("in_ptr0, out_ptr0, xnumel")
    assert with_int32_offsets(kernel, {"r0_numel": 27}) is kernel
