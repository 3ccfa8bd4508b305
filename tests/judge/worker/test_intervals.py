"""Bounds of values in kernels: whatever the interpreter computes lies between them."""

import math

import numpy as np
import pytest
import triton.language as tl
from hypothesis import given, settings, strategies as st
from triton.runtime.interpreter import TensorHandle

from kernelllm_judge.worker import intervals
from kernelllm_judge.worker.dependence import NUMBERS

FLOATS = {
    "fadd": np.add,
    "fsub": np.subtract,
    "fmul": np.multiply,
    "fdiv": np.divide,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
}
INTEGERS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "lshr": np.right_shift,
    "sdiv": lambda a, b: np.trunc(a / b).astype(a.dtype),
    "srem": np.fmod,
}


def handle(values, interval=None, dtype=tl.float32):
    made = TensorHandle(np.asarray(values), dtype)
    made.kinds, made.interval, made.makers, made.lanes = (
        (NUMBERS if interval else 0),
        interval,
        frozenset(),
        None,
    )
    return made


def inside(values, bounds):
    return bool(((bounds[0] <= values) & (values <= bounds[1]) | np.isnan(values)).all())


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(sorted(FLOATS)))
def test_results_of_floats_lie_within_their_bounds(data, name):
    numbers = st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4)
    operands = []
    for _ in range(2):
        values = np.float32(data.draw(numbers))
        operands.append(handle(values, (float(values.min()), float(values.max()))))
    with np.errstate(all="ignore"):
        result = handle(FLOATS[name](operands[0].data, operands[1].data))
    found = intervals.result(name, result, operands)
    assert found is None or inside(result.data, found)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(sorted(INTEGERS)))
def test_results_of_integers_lie_within_their_bounds(data, name):
    first = np.int64(data.draw(st.lists(st.integers(-1000, 1000), min_size=4, max_size=4)))
    second = np.int64(data.draw(st.lists(st.integers(1, 30), min_size=4, max_size=4)))
    operands = [handle(v, (int(v.min()), int(v.max())), tl.int64) for v in (first, second)]
    result = handle(INTEGERS[name](first, second), dtype=tl.int64)
    found = intervals.result(name, result, operands)
    assert found is None or inside(result.data, found)


def test_what_wraps_is_bounded_by_its_type_alone():
    big = handle(np.int32([2**31 - 1]), (0, 2**31 - 1), tl.int32)
    assert intervals.result("add", big, (big, big)) is None


def test_no_product_of_sizes_is_0():
    size = handle(np.int32([5]), (1, 2**31 - 1), tl.int32)
    pair = size, handle(np.int32([7]), (1, 9), tl.int32)
    assert intervals.result("mul", size, pair, loaded=False) == (1, 2**31 - 1)
    assert intervals.result("mul", size, pair) is None  # loaded numbers wrap


def test_a_cast_drops_fractions_and_what_is_too_small_may_be_0():
    x = handle(np.float32([0.5]), (0.5, 3.7))
    assert intervals.result("fp_to_si", handle(np.int32([0]), dtype=tl.int32), (x,)) == (0, 4)
    small = handle(np.float32([1e-30]), (1e-30, 1e30))
    assert intervals.result("fmul", small, (small, small)) == (0.0, math.inf)


@pytest.mark.parametrize(
    ("name", "bounds"),
    [("exp", (0, math.inf)), ("fabs", (0, 3 * 1.01)), ("tanh", (-1.01, 1.01)), ("expand_dims", (-2, 3))],
)
def test_functions_are_bounded(name, bounds):
    x = handle(np.float32([1.0]), (-2.0, 3.0))
    assert intervals.result(name, x, (x,)) == pytest.approx(bounds)


@pytest.mark.parametrize(
    ("sign", "a", "b", "settled"),
    [
        ("<", (0, 1), (1, 2), False),
        ("<", (0, 1), (2, 3), True),
        (">=", (0, 1), (2, 3), True),
        (">", (0, 2), (2, 3), True),
        (">", (0, 3), (2, 3), False),
        ("==", (0, 1), (2, 3), True),
        ("!=", (0, 2), (2, 3), False),
    ],
)
def test_a_comparison_is_settled_where_bounds_leave_one_outcome(sign, a, b, settled):
    assert intervals.settled(sign, handle(np.float32([0]), a), handle(np.float32([0]), b)) == settled


def test_an_address_has_no_bounds():
    pointer = handle(np.uint64([64]), (-math.inf, math.inf), tl.pointer_type(tl.float32))
    assert intervals.result("splat", pointer, (pointer,)) is None


@pytest.mark.parametrize("name", ["icmpSLT", "icmpSLE", "icmpSGT", "icmpSGE", "icmpEQ", "icmpNE"])
def test_a_choice_that_bounds_settle_is_what_it_takes(name):
    compare = {"LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal, "EQ": np.equal}
    compare["NE"] = np.not_equal
    yes, no = handle(np.int32([100]), (100, 100), tl.int32), handle(np.int32([7]), (7, 7), tl.int32)
    for low, high in ((0, 9), (-9, -1), (-9, 9), (0, 0)):
        index, zero = handle(np.int32([low]), (low, high), tl.int32), handle(np.int32([0]), dtype=tl.int32)
        falls = {bool(compare[name[-2:]](value, 0)) for value in range(low, high + 1)}
        condition = handle(np.array([True]), dtype=tl.int1)
        condition.kinds, condition.interval = NUMBERS, intervals.result(name, condition, (index, zero))
        known = None if len(falls) == 2 else (int(min(falls)),) * 2
        assert condition.interval == known
        taken = tuple(each for each, fall in ((yes, True), (no, False)) if fall in falls)
        assert intervals.chosen(condition, yes, no) == taken
        ends = min(each.interval[0] for each in taken), max(each.interval[1] for each in taken)
        assert intervals.result("select", yes, (condition, yes, no)) == ends
