"""The numbers with which a kernel module compares sizes."""

import textwrap

import pytest

from kernelllm_judge.static_check.compared import compared_numbers

MODULE = """
import torch
import triton
import triton.language as tl

FEW = 3 * 1000
WIDE: tl.constexpr = tl.constexpr(1 << 14)


@triton.jit
def double(x, n):
    return x * 2 if n != 11 else x


@triton.heuristics({{"EVEN": lambda given: given["n"] <= {heuristic}}})
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    half = offsets % 64 < 32
    x = tl.load(x_ptr + offsets, offsets < n)
{kernel}
    tl.store(out_ptr + offsets, double(x, n), offsets < n)


def forward(self, x):
    rows, width = x.shape
    out = torch.empty_like(x)
{forward}
    kernel[(triton.cdiv(rows * width, 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""


def numbers(forward="", kernel="", heuristic=0):
    forward, kernel = (textwrap.indent(text, "    ") for text in (forward, kernel))
    text = MODULE.format(forward=forward, kernel=kernel, heuristic=heuristic)
    return set(compared_numbers(text)) - {11}


def test_a_module_that_compares_nothing_has_none():
    assert compared_numbers(MODULE.format(forward="", kernel="", heuristic=0)) == (11,)


def test_what_a_decorator_of_a_kernel_compares_is_found():
    assert numbers(heuristic=3000) == {3000}


@pytest.mark.parametrize(
    "forward",
    [
        "big = x.numel() > 3000",
        "big = 3000 <= rows",
        "big = rows != FEW",
        "big = x.numel() < 3e3",
        "big = 1 if rows * width == 3 * 10**3 else 2",
        "few = min(rows, FEW)",
        "few = max(FEW, rows, width)",
        "big = [out, x][rows // FEW > 0]",
        "if rows // 3000: rows = 1",
        "limit = 3000\nif rows < limit: rows = 1",
        "match rows:\n    case 3000: rows = 1",
        "match x.shape:\n    case (3000, _): rows = 1",
        "big = (lambda n: n < 3000)(rows)",
        "limit = 0\nlimit = 3000\nbig = rows < limit",
        "big = rows < (limit := 3000) or width < limit",
        "less = limit = 2999\nbig = rows < limit + 1",
        "limit, other = 3000, x\nbig = rows < limit",
        "big = rows in (3000, 1)",
        "big = (rows, 0) < (3000, 1)",
        "whole = rows % 3000 == 0",
        "how = {3000: 'a', 0: 'b'}.get(width)",
        "def few(n, limit=3000): return n <= limit",
        "big = (lambda n, limit: n < limit)(rows, limit=3000)",
        "def few(n, limit): return n <= limit\nbig = few(rows, 3000)",
        "class Limits:\n    few = 3000\nbig = rows > Limits.few",
        "big = triton.next_power_of_2(rows) > 3000",
    ],
)
def test_what_is_compared_outside_a_kernel_is_found(forward):
    assert numbers(forward) - {0, 1} == {3000}


@pytest.mark.parametrize(
    "forward",
    [
        "unit = 30\nlimit = 100 * unit\nbig = rows < limit",
        "limit = 1500\nlimit *= 2\nbig = rows < limit",
        "for limit, block in [(3000, 256), (65536, 1024)]:\n    if rows <= limit: break",
        "table = [(3000, 256), (65536, 1024)]\nblock = next(b for limit, b in table if rows <= limit)",
        "limits = {'few': 3000}\nbig = rows < limits['few']",
        "blocks = {(3000, 1): 256}\nblock = blocks.get((rows, width))",
        "import bisect\nblock = bisect.bisect_left([3000], x.numel())",
        "big = rows in range(3000, 5000)",
        "limit = tl.constexpr(3000)\nbig = rows < limit.value",
        "big = rows <= int(3000)",
        "big = rows <= 6000 / 2",
        "big = rows <= 3000.5",
        "big = rows <= getattr(self, 'few', 3000)",
        "big = rows <= OPTIONS.get('few', 3000)",
        "big = x.numel() * 4 <= 12000",
        "big = x.numel() * x.element_size() <= 12000",
        "big = x.numel() // 2 <= 1500",
        "big = (x.numel() >> 3) < 375",
        "big = triton.cdiv(x.numel(), 1000) <= 3",
        "big = max([rows, 3000])",
        "big = -rows > -3000",
        "import operator\nbig = operator.lt(rows, 3000)",
    ],
)
def test_what_is_written_in_other_ways_is_found(forward):
    assert 3000 in numbers(forward)


def test_each_part_of_a_chain_counts():
    assert numbers("fits = 5 < rows <= 90 < width") == {5, 90}


def test_a_shift_divides_by_a_power_of_two():
    assert numbers("big = rows >> 12") == {4096}


@pytest.mark.parametrize(
    "kernel",
    [
        "if n >= WIDE: x += 1",
        "x += tl.where(n < 16384, 1, 0)",
        "x += n // 16384",
        "x += tl.minimum(n, 16384)",
        "if n * BLOCK == 1 << 14: x += 1",
        "if n % 16384 == 0: x += 1",
        "size = n * 2\nif size <= 16384: x += 1",
        "limit = 16384\nif n <= limit: x += 1",
    ],
)
def test_what_a_kernel_is_given_is_found(kernel):
    assert 16384 in numbers(kernel=kernel) <= {2, 8192, 16384, 32768, 65536}


@pytest.mark.parametrize(
    "kernel",
    [
        "x += tl.where(offsets < 4096, 1, 0)",
        "x += tl.where(x > 7.0, 1, 0)",
        "x += tl.minimum(x, 7)",
        "n += 0\nx += tl.where(n < 7, 1, 0)",
    ],
)
def test_what_a_kernel_computes_is_not(kernel):
    assert numbers(kernel=kernel) == set()


def test_numbers_that_are_no_sizes_are_left_out():
    assert numbers("odd = rows < 0 or rows > 0.5 or width > 2**40 or x.dtype == 'a'") == set()


@pytest.mark.parametrize(
    "text",
    [
        "big = rows <= " + "+".join(["1"] * 900),
        "big = max(" + ", ".join(["rows"] * 3000) + ")",
        "\n".join(f"big = rows < {number}" for number in range(3000)),
        f"big = f(rows, {[*range(2, 3000)]}) < " + " < ".join(map(str, range(2, 3000))),
    ],
    ids=["a long sum", "many arguments", "many numbers", "a long chain"],
)
@pytest.mark.timeout(240)
def test_long_texts_are_read(text):
    assert len(numbers(text)) <= 12_000


def test_a_number_that_would_fill_the_memory_is_none():
    assert numbers("odd = rows >> 99999999999 or rows < 9**9**9") == set()
    assert numbers(f"odd = rows * {10**400} < 7.0 or rows < {10**400} or rows < 1e999 / 3") == {7}
