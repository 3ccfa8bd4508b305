"""Elementwise functions that ``tl`` lacks; ``lower`` copies those that a kernel needs into its module.

They are accurate to float32 and propagate NaN where torch does. Their text is part of kernel modules.
"""
# Triton's functions cannot carry Python's annotations: the compiler takes them for types of its own.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"

import triton
import triton.language as tl


@triton.jit
def log1p(x):
    """log(1 + x). With 1 + x = 2**e * (1 + m), where m keeps all digits of x, it is e * log(2) + log(1 + m).

    The polynomial is the minimax approximation of (log(1 + m) - m) / m**2 for m from -1/4 to 1/2.
    """
    x = x.to(tl.float32)
    e = ((1.0 + x).to(tl.int32, bitcast=True) - 0x3F400000) & -0x800000  # times 2**23, as in a float's bits
    four = (0x40800000 - e).to(tl.float32, bitcast=True)  # times 2**-e
    m = (x.to(tl.int32, bitcast=True) - e).to(tl.float32, bitcast=True) + (0.25 * four - 1.0)
    series = -0.16822818 + m * (0.14983916 + m * (-0.12067317 + m * 0.054131854))
    series = -0.5000006 + m * (0.3333355 + m * (-0.24993442 + m * (0.19977078 + m * series)))
    result = e.to(tl.float32) * 8.262958e-08 + (m + m * m * series)
    result = tl.where(x < float("inf"), result, x)
    return tl.where(x > -1.0, result, tl.where(x == -1.0, float("-inf"), float("nan")))


@triton.jit
def normal_cdf(x):
    """(1 + erf(x / sqrt(2))) / 2. For x < 0 it is 2**-s; s is nearly a polynomial, fitted so that GELU is accurate."""
    size = tl.abs(x)
    s = 0.00035977070 + size * (8.7299471e-05 + size * (-1.7411952e-05 + size * 9.2051209e-07))
    s = 0.45916352 + size * (0.052658331 + size * (-0.0073290220 + size * s))
    tail = tl.exp2(-1.0 - size * (1.1511091 + size * s))
    return tl.where(x < 0, tail, 1.0 - tail)


@triton.jit
def pow_integer(base, exponent):
    """base ** exponent for integers, by squaring."""
    result = tl.full(base.shape, 1, base.dtype)
    factor = base
    left = exponent + tl.zeros_like(base)
    for _ in range(6):
        result = tl.where((left & 1) != 0, result * factor, result)
        factor = factor * factor
        left = left >> 1
    return result


@triton.jit
def floor_divide(a, b):
    """Integer division rounded down, as Python's."""
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def floor_remainder(a, b):
    """Integer remainder with the sign of the divisor, as Python's."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def maximum(a, b):
    """The larger one; NaN wins, as in torch."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    """The smaller one; NaN wins, as in torch."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
