"""Elementwise functions that ``tl`` lacks; ``lower`` copies those that a kernel needs into its module.

They use only plain ``tl``, so they also run in Triton's interpreter. They are accurate to float32 unless stated
otherwise, and propagate NaN where torch does. Their text is part of kernel modules.
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
def expm1(x):
    """exp(x) - 1; near zero its series, as subtracting 1 cancels."""
    series = 1 / 24 + x * (1 / 120 + x * (1 / 720 + x * (1 / 5040 + x * (1 / 40320))))
    series = x * (1.0 + x * (1 / 2 + x * (1 / 6 + x * series)))
    return tl.where(tl.abs(x) < 0.5, series, tl.exp(x) - 1.0)


@triton.jit
def log1p_float64(x):
    """log(1 + x), accurate to float64; near zero corrected by the rounding error of u = 1 + x."""
    u = 1.0 + x
    corrected = tl.log(u) * (x / (u - 1.0))
    return tl.where((u == 1.0) | (u == float("inf")), x, corrected)


@triton.jit
def expm1_float64(x):
    """exp(x) - 1, accurate to float64; near zero u - 1 is corrected by x / log(u), u = exp(x)."""
    u = tl.exp(x)
    corrected = (u - 1.0) * (x / tl.log(u))
    plain = (u == float("inf")) | (u - 1.0 == -1.0)
    return tl.where(u == 1.0, x, tl.where(plain, u - 1.0, corrected))


@triton.jit
def tanh(x):
    """Hyperbolic tangent; near zero its series, as exponentials cancel."""
    square = x * x
    series = 1.0 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835))))
    far = 1.0 - 2.0 / (tl.exp(2.0 * tl.abs(x)) + 1.0)
    return tl.where(tl.abs(x) < 0.25, x * series, tl.where(x < 0, -far, far))


@triton.jit
def normal_cdf(x):
    """(1 + erf(x / sqrt(2))) / 2. For x < 0 it is 2**-s; s is nearly a polynomial, fitted so that GELU is accurate."""
    size = tl.abs(x)
    s = 0.00035977070 + size * (8.7299471e-05 + size * (-1.7411952e-05 + size * 9.2051209e-07))
    s = 0.45916352 + size * (0.052658331 + size * (-0.0073290220 + size * s))
    tail = tl.exp2(-1.0 - size * (1.1511091 + size * s))
    return tl.where(x < 0, tail, 1.0 - tail)


@triton.jit
def sinh(x):
    """Hyperbolic sine, accurate near zero."""
    e = expm1(tl.abs(x))
    # exp(|x|) alone overflows before sinh does, so the half goes inside the product.
    half = tl.exp(0.5 * tl.abs(x))
    magnitude = tl.where(tl.abs(x) > 20.0, 0.5 * half * half, 0.5 * (e + e / (e + 1.0)))
    return tl.where(x < 0, -magnitude, tl.where(x == 0, x, magnitude))


@triton.jit
def sinh_float64(x):
    """Hyperbolic sine, accurate to float64 near zero."""
    e = expm1_float64(tl.abs(x))
    half = tl.exp(0.5 * tl.abs(x))
    magnitude = tl.where(tl.abs(x) > 20.0, 0.5 * half * half, 0.5 * (e + e / (e + 1.0)))
    return tl.where(x < 0, -magnitude, tl.where(x == 0, x, magnitude))


@triton.jit
def cosh(x):
    """Hyperbolic cosine."""
    half = tl.exp(0.5 * tl.abs(x))
    return 0.5 * half * half + 0.5 / (half * half)


@triton.jit
def tan(x):
    """Tangent."""
    return tl.sin(x) / tl.cos(x)


@triton.jit
def log10(x):
    """Logarithm to base 10."""
    return tl.log(x) * 0.4342944819032518


@triton.jit
def trunc(x):
    """Round towards zero."""
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def round_half_even(x):
    """Round to the nearest integer, halves to the even one: 2**23 is where float32 has no digits behind the point."""
    size = tl.abs(x).to(tl.float32)
    rounded = (size + 8388608.0) - 8388608.0
    return tl.where(size < 8388608.0, copysign(rounded, x), x).to(x.dtype)


@triton.jit
def round_half_even_float64(x):
    """Round float64 to the nearest integer, halves to the even one."""
    low = tl.floor(x)
    rest = x - low
    odd = low - 2.0 * tl.floor(0.5 * low) != 0
    rounded = tl.where((rest > 0.5) | ((rest == 0.5) & odd), low + 1.0, low)
    return tl.where(tl.abs(x) < 4503599627370496.0, rounded, x)


@triton.jit
def power(base, exponent):
    """base ** exponent as C's pow; float64 keeps digits in large exponents."""
    b = base.to(tl.float64)
    y = (exponent + tl.zeros_like(base)).to(tl.float64)
    magnitude = tl.exp(y * tl.log(tl.abs(b)))
    whole = tl.floor(y) == y
    odd = whole & (tl.floor(0.5 * y) != 0.5 * y)
    negative = (b < 0) | ((b == 0) & (1.0 / b < 0))
    signed = tl.where(negative & odd, -magnitude, magnitude)
    infinite = (b == float("-inf")) | (tl.abs(y) == float("inf"))
    result = tl.where((b < 0) & ~whole & ~infinite, float("nan"), signed)
    one = (y == 0) | (b == 1) | ((b == -1) & (tl.abs(y) == float("inf")))
    return tl.where(one, 1.0, result).to(base.dtype)


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
def is_nan(x):
    """Whether x is NaN."""
    return x != x


@triton.jit
def is_inf(x):
    """Whether x is infinite."""
    return tl.abs(x) == float("inf")


@triton.jit
def sign_bit(x):
    """Whether the sign bit of a float32 is set (-0.0 has it)."""
    return x.to(tl.float32).to(tl.int32, bitcast=True) < 0


@triton.jit
def copysign(x, sign):
    """|x| with the sign of ``sign``."""
    return tl.where(sign_bit(sign), -tl.abs(x), tl.abs(x))


@triton.jit
def fmod(a, b):
    """Remainder with the dividend's sign; exact for quotients to 2**29."""
    wide = a.to(tl.float64)
    divisor = b.to(tl.float64)
    quotient = wide / divisor
    whole = tl.where(quotient < 0, tl.ceil(quotient), tl.floor(quotient))
    rest = wide - whole * divisor
    unbounded = (tl.abs(divisor) == float("inf")) & (tl.abs(wide) != float("inf"))
    return tl.where(unbounded, wide, rest).to(a.dtype)


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


@triton.jit
def relu(x):
    """The larger of x and 0; NaN stays, as in torch."""
    return maximum(x, 0.0)


@triton.jit
def clip(x, low, high):
    """x between two bounds; NaN stays, as in torch."""
    return minimum(maximum(x, low), high)
