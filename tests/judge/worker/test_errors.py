"""Errors of a candidate in words: what Triton's compiler says ends with its reason, not with the kernel's text."""

from pathlib import Path

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pytest_kernelllm.judge.worker.errors import describe

HERE = Path(__file__).parent


@triton.jit
def missing(x_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets)
    tl.store(x_ptr + offsets, tl.no_such_function(x))


@triton.jit
def seven(x):
    return tl.reshape(x, (7,))


@triton.jit
def in_a_function(x_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(x_ptr + offsets, seven(tl.load(x_ptr + offsets)))


@triton.jit
def flat_product(x_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets)
    y = tl.dot(x, x)
    tl.store(x_ptr + offsets, y)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (
            missing,
            "has no attribute 'no_such_function'\") at `tl.store(x_ptr + offsets, tl.no_such_function(x))`",
        ),
        (in_a_function, "Shape element 0 must be a power of 2 at `return tl.reshape(x, (7,))`"),
        (flat_product, "must have equal ranks >= 2 at `y = tl.dot(x, x)`"),
    ],
    ids=["missing", "in a function", "flat product"],
)
def test_what_the_compiler_says_ends_with_its_reason(kernel, reason):
    source = ASTSource(kernel, {"x_ptr": "*fp32", "N": "constexpr"}, {"N": 16})
    with pytest.raises(Exception) as error:  # noqa: PT011  # the compiler raises errors of its own
        triton.compile(source, target=GPUTarget("cuda", 90, 32))
    found = describe(error.value, HERE)
    assert found["message"].endswith(reason)
    assert "tl.arange" not in found["message"]


def test_other_errors_keep_their_words():
    assert describe(ValueError("bad\n  size ^ 2"), HERE) == {
        "type": "ValueError",
        "message": "bad size ^ 2",
        "line": None,
    }
