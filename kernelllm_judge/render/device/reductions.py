"""Reductions, scans and sorting that ``tl`` lacks; ``lower`` copies those that a kernel needs into its module."""
# Triton's functions cannot carry Python's annotations: the compiler takes them for types of its own.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"

import triton
import triton.language as tl

from kernelllm_judge.render.device.elementwise import maximum, minimum


@triton.jit
def nan_max(values, dim: tl.constexpr):
    """Maximum along an axis; NaN wins, as in torch."""
    return tl.reduce(values, dim, maximum)


@triton.jit
def nan_min(values, dim: tl.constexpr):
    """Minimum along an axis; NaN wins, as in torch."""
    return tl.reduce(values, dim, minimum)


@triton.jit
def _first_index(values, extreme, index, dim: tl.constexpr):
    """The smallest index along an axis at which a value is the extreme; if that is NaN, at which it is NaN."""
    best = values == tl.expand_dims(extreme, dim)
    if values.dtype.is_floating():
        best |= values != values
        best &= (values != values) | tl.expand_dims(extreme == extreme, dim)
    return tl.min(tl.where(best, index, 2147483647), dim).to(index.dtype)


@triton.jit
def max_with_index(values, index, dim: tl.constexpr):
    """Maximum along an axis and its first index; NaN wins, as in torch."""
    largest = nan_max(values, dim)
    return largest, _first_index(values, largest, index, dim)


@triton.jit
def min_with_index(values, index, dim: tl.constexpr):
    """Minimum along an axis and its first index; NaN wins, as in torch."""
    smallest = nan_min(values, dim)
    return smallest, _first_index(values, smallest, index, dim)


@triton.jit
def _better_with_index(better, a, a_index, b, b_index):
    """``a`` where it is better, and ``b`` elsewhere, with its index; NaN wins, then the smaller index."""
    equal = a == b
    if a.dtype.is_floating():
        a_nan = a != a
        b_nan = b != b
        better |= a_nan & ~b_nan
        equal |= a_nan & b_nan
    better |= equal & (a_index < b_index)
    return tl.where(better, a, b), tl.where(better, a_index, b_index)


@triton.jit
def maximum_with_index(a, a_index, b, b_index):
    """Elementwise maximum with its index; NaN wins, then the smaller index."""
    return _better_with_index(a > b, a, a_index, b, b_index)


@triton.jit
def minimum_with_index(a, a_index, b, b_index):
    """Elementwise minimum with its index; NaN wins, then the smaller index."""
    return _better_with_index(a < b, a, a_index, b, b_index)


@triton.jit
def any_true(values, dim: tl.constexpr):
    """Whether any value along an axis is set."""
    return tl.max((values != 0).to(tl.int32), dim) != 0


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def product(values, dim: tl.constexpr):
    """Product along an axis."""
    return tl.reduce(values, dim, _multiply)


@triton.jit
def select_one(values, mask, dim: tl.constexpr, keep_dims: tl.constexpr = False):
    """The one value along an axis that the mask marks."""
    return tl.sum(tl.where(mask, values, 0), dim, keep_dims=keep_dims)


@triton.jit
def sort_with_index(
    values,
    index,
    count,
    dim: tl.constexpr,
    stable: tl.constexpr = False,
    descending: tl.constexpr = False,
):
    """The first ``count`` values along the last axis; NaN is the largest."""
    tl.static_assert(values.dtype.primitive_bitwidth <= 32)
    if values.dtype.is_floating():
        exact = tl.where(values != values, float("nan"), values.to(tl.float32) + 0.0)
        bits = exact.to(tl.int32, bitcast=True)
        order = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    else:
        order = values.to(tl.int32)
    if descending:
        order = ~order
    if count is not None:
        order = tl.where(index < count, order, 0x7FFFFFFF)
    # Value and index in one number: equal values keep their order, and what lies behind ``count`` stays there.
    pair = tl.sort((order.to(tl.int64) << 32) | index.to(tl.int64), dim)
    order = (pair >> 32).to(tl.int32)
    if descending:
        order = ~order
    if values.dtype.is_floating():
        bits = tl.where(order < 0, order ^ 0x7FFFFFFF, order)
        found = bits.to(tl.float32, bitcast=True).to(values.dtype)
    else:
        found = order.to(values.dtype)
    return found, (pair & 0x7FFFFFFF).to(index.dtype)


@triton.jit
def at_least_1d(x):
    """A scalar as a tensor of one element."""
    return x + tl.zeros((1,), tl.int1)


@triton.jit
def welford_next(value, mean, m2, weight):
    """Running mean, squared deviations and count, with one more value; at first all three are 0."""
    delta = value - mean
    new_weight = weight + 1
    new_mean = mean + delta / new_weight
    return new_mean, m2 + delta * (value - new_mean), new_weight


@triton.jit
def welford_total(mean, m2, weight, dim: tl.constexpr):
    """Mean, squared deviations and count of the parts along an axis."""
    total = tl.sum(weight, dim)
    centre = tl.sum(mean * weight, dim) / tl.where(total == 0, 1.0, total)
    delta = mean - tl.expand_dims(centre, dim)
    return centre, tl.sum(m2 + weight * delta * delta, dim), total


@triton.jit
def welford_joined(mean, m2, weight, other_mean, other_m2, other_weight):
    """Mean, squared deviations and count of two parts together; a part may be empty."""
    total = weight + other_weight
    share = tl.where(total == 0, 0.0, other_weight / tl.where(total == 0, 1.0, total))
    delta = other_mean - mean
    return mean + delta * share, m2 + other_m2 + delta * delta * weight * share, total


@triton.jit
def online_softmax_next(largest, total, values, fast: tl.constexpr):
    """Running maximum and sum of exponentials, with one more value."""
    new_largest = maximum(largest, values)
    # -inf minus -inf is NaN; nothing but -inf was seen then, and the sum stays as it is.
    old_scale = tl.where(new_largest == largest, 1.0, tl.exp(largest - new_largest))
    step = tl.where(new_largest == float("-inf"), 0.0, tl.exp(values - new_largest))
    return new_largest, total * old_scale + step


@triton.jit
def online_softmax_joined(largest, total, other_largest, other_total, fast: tl.constexpr):
    """Maximum and sum of exponentials of two parts together."""
    top = maximum(largest, other_largest)
    # -inf minus -inf is NaN; a part that saw nothing but -inf keeps its sum.
    scale = tl.where(top == largest, 1.0, tl.exp(largest - top))
    other_scale = tl.where(top == other_largest, 1.0, tl.exp(other_largest - top))
    return top, total * scale + other_total * other_scale


@triton.jit
def online_softmax_total(largest, total, dim: tl.constexpr, fast: tl.constexpr):
    """Maximum and sum of exponentials over parts along an axis."""
    top = nan_max(largest, dim)
    wide = tl.expand_dims(top, dim)
    scale = tl.where(wide == float("-inf"), 0.0, tl.exp(largest - wide))
    return top, tl.sum(total * scale, dim)
