"""Whether a kernel's offsets have 64 bits: told from its source, and never assumed."""

import pytest

from kernelllm_judge.core.offsets import offsets_have_64_bits

MODULE = """
import triton
import triton.language as tl


from triton.language.extra.libdevice import tanh

get = max = tl.load


@triton.jit
def squared(x):
    return x * x


@triton.jit
def own(x_ptr, offset):
    return tl.load(x_ptr + offset)


@triton.jit
def kernel(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    {body}
"""

WIDE = {
    "a cast program id": "i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)",
    "by tl.cast": "i = tl.cast(tl.program_id(0), tl.int64) * BLOCK\n    tl.store(out_ptr + i, 1.0)",
    "a pointer moved by rows": "row = tl.program_id(0).to(tl.int64)\n    x_ptr += row * stride\n    c = tl.arange(0, BLOCK)\n    tl.store(out_ptr + row * stride + c, tl.load(x_ptr + c))",
    "products of values": "i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n    x = tl.load(x_ptr + i)\n    tl.store(out_ptr + i, x * x * n)",
    "functions of values": "i = tl.program_id(0).to(tl.int64) * BLOCK\n    x = tl.load(x_ptr + i)\n    tl.store(out_ptr + i, tanh(x * n) + squared(x * x))",
    "constants alone": "i = tl.arange(0, BLOCK) + BLOCK * WIDTH\n    tl.store(out_ptr + i, 1.0)",
    "two dimensions": "r = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]\n    c = tl.arange(0, WIDTH)[None, :]\n    tl.store(out_ptr + r * stride + c, 0.0, mask=(r < n) & (c < stride))",
    "a loop in 64 bits": "for i in range(tl.program_id(0).to(tl.int64) * BLOCK, n, BLOCK):\n        tl.store(out_ptr + i + tl.arange(0, BLOCK), 0.0)",
    "an index that is cast": "i = tl.program_id(0).to(tl.int64)\n    at = tl.load(x_ptr + i).to(tl.int64)\n    tl.store(out_ptr + at * stride, 0.0)",
}  # fmt: skip

NARROW = {
    "a program id": "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)",
    "cast too late": "i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)\n    tl.store(out_ptr + i, 0.0)",
    "cast in one of two places": "p = tl.program_id(0)\n    i = p.to(tl.int64) * BLOCK\n    tl.store(out_ptr + i, tl.load(x_ptr + p * BLOCK))",
    "only the mask": "p = tl.program_id(0)\n    i = p.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n    tl.store(out_ptr + i, 0.0, mask=p * BLOCK + tl.arange(0, BLOCK) < n)",
    "a mask by name": "p = tl.program_id(0)\n    m = p * BLOCK + tl.arange(0, BLOCK) < n\n    i = p.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n    tl.load(x_ptr + i, m)",
    "on one path": "p = tl.program_id(0)\n    if n > 5:\n        p = p.to(tl.int64)\n    tl.store(out_ptr + p * BLOCK, 0.0)",
    "an argument that names itself": "n = n + 0\n    tl.store(out_ptr + n * stride, 0.0)",
    "a moved pointer": "x_ptr += tl.program_id(0) * stride\n    tl.store(out_ptr + tl.arange(0, BLOCK), tl.load(x_ptr + tl.arange(0, BLOCK)))",
    "another function": "own(x_ptr, tl.program_id(0) * BLOCK)",
    "a shift": "tl.store(out_ptr + (tl.program_id(0) << 10), 0.0)",
    "a loop over elements": "for i in range(0, n, BLOCK):\n        tl.store(out_ptr + (i + tl.arange(0, BLOCK)), 0.0)",
    "an atomic": "tl.atomic_add(out_ptr + tl.program_id(0) * BLOCK, 1.0)",
    "a block pointer": "p = tl.make_block_ptr(x_ptr, (n,), (1,), (tl.program_id(0) * BLOCK,), (BLOCK,), (0,))\n    tl.load(p)",
    "in passing": "tl.store(out_ptr + (i := tl.program_id(0) * BLOCK), 0.0)\n    tl.load(x_ptr + i)",
    "a gathered index": "at = tl.load(x_ptr + tl.arange(0, BLOCK))\n    tl.load(x_ptr + at * stride)",
    "cast back": "i = (tl.program_id(0).to(tl.int64) * BLOCK).to(tl.int32)\n    tl.store(out_ptr + i, 0.0)",
    "cast to what something has": "i = (tl.program_id(0).to(tl.int64) * BLOCK).to(n.dtype)\n    tl.store(out_ptr + i, 0.0)",
    "by another name": "get(x_ptr + tl.program_id(0) * BLOCK)",
    "by a builtin's name": "max(x_ptr + tl.program_id(0) * BLOCK)",
    "by a descriptor": "d = tl.make_tensor_descriptor(x_ptr, (n,), (1,), (BLOCK,))\n    tl.load_tensor_descriptor(d, [tl.program_id(0) * BLOCK])",
    "a while loop over elements": "i = 0\n    while i < n:\n        tl.store(out_ptr + i + tl.arange(0, BLOCK), 0.0, mask=i + tl.arange(0, BLOCK) < n)\n        i += BLOCK",
    "a counter that counts itself": "i = 0\n    while i < n:\n        tl.load(x_ptr + i, mask=(i + tl.arange(0, BLOCK)) < n)\n        i = i + BLOCK",
    "inline assembly": "tl.load(x_ptr + tl.inline_asm_elementwise('mul.lo.s32 $0, $1, $1;', '=r,r', [tl.program_id(0)], tl.int32, True, 1))",
    "a function that multiplies": "tl.load(x_ptr + tl.umulhi(tl.program_id(0), n))",
}  # fmt: skip


@pytest.mark.parametrize("body", WIDE.values(), ids=WIDE)
def test_offsets_in_64_bits_are_recognised(body):
    assert offsets_have_64_bits(MODULE.format(body=body))


@pytest.mark.parametrize("body", NARROW.values(), ids=NARROW)
def test_everything_else_counts_as_32_bits(body):
    assert not offsets_have_64_bits(MODULE.format(body=body))


@pytest.mark.parametrize("made", ["from triton import jit as quick\n@quick", "quick = triton.jit\n@quick"])
def test_kernels_that_are_not_seen_count_as_32_bits(made):
    hidden = "def hidden(x_ptr, n):\n    tl.store(x_ptr + tl.program_id(0) * n, 0.0)\n"
    assert offsets_have_64_bits(MODULE.format(body="pass"))
    assert not offsets_have_64_bits(MODULE.format(body="pass") + made + "\n" + hidden)
    assert not offsets_have_64_bits(MODULE.format(body="pass") + hidden + "kernel = triton.jit(hidden)\n")
