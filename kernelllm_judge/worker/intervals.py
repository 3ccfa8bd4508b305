"""Bounds between which a kernel's value lies, whatever is loaded: a decision that they settle is none.

They are those of interval arithmetic, and know nothing of how two values hang together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import triton.language as tl
from triton.runtime.interpreter import TensorHandle

Interval = tuple[float, float]

COMPARISONS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
"""What the ends of the names of Triton's comparisons mean."""

_ROUNDING = 0.01
"""How far, as a share of it, an end may lie off by rounding."""

_MOVED = frozenset({"expand_dims", "broadcast", "reshape", "trans", "splat", "unsplat", "split"})
_CAST = frozenset(
    {"si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc", "fp_to_fp", "int_cast"}
)
_POSITIVE = frozenset({"exp", "exp2", "exp10", "sqrt", "precise_sqrt", "rsqrt", "cosh", "erfc"})
_WITHIN_ONE = frozenset({"sin", "cos", "tanh", "erf"})


def interval(value: Any) -> Interval:
    """Returns the bounds of an operand: of a constant its own, otherwise those of its operation or dtype."""
    if type(value) is not TensorHandle:
        return (value, value) if type(value) in (bool, int, float) else (-math.inf, math.inf)
    if value.interval is not None:
        return value.interval  # type: ignore[no-any-return]
    value.interval = _of_dtype(value)
    data = value.data
    if not value.kinds and data.size and data.dtype.kind in "biuf" and value.dtype.scalar is not tl.bfloat16:
        low, high = data.min().item(), data.max().item()
        if low <= high:
            value.interval = low, high
    return value.interval  # type: ignore[no-any-return]


def settled(sign: str, a: Any, b: Any) -> bool:
    """Whether a comparison can fall one way only, but for NaN."""
    return _outcome(sign, a, b) is not None


def _outcome(sign: str, a: Any, b: Any) -> bool | None:
    """Returns how a comparison falls; None if it can fall either way."""
    (low, high), (least, most) = interval(a), interval(b)
    if sign in ("==", "!="):
        if low == high == least == most:
            return sign == "=="
        return sign == "!=" if high < least or low > most else None
    if sign in ("<", ">="):
        return (sign == "<") if high < least else (sign == ">=") if low >= most else None
    return (sign == "<=") if high <= least else (sign == ">") if low > most else None


def chosen(condition: Any, yes: Any, no: Any) -> tuple[Any, ...]:
    """Returns those of two operands that a choice may take."""
    low, high = interval(condition)
    return (yes, no) if low != high else (yes,) if low else (no,)


def result(name: str, made: Any, operands: Sequence[Any], *, loaded: bool = True) -> Interval | None:
    """Returns the bounds of what an operation of the interpreter's builder made; None where only its dtype bounds it.

    ``loaded``: whether it depends on loaded values; products of others are of sizes, and judged as far as they do not wrap.
    """
    found = _result(name, operands)
    if found is None or any(map(math.isnan, found)):
        return None
    low, high = found
    least, most = _of_dtype(made)
    if not _floating(made):
        if name == "mul" and low >= 1 and not loaded:
            high = min(high, most)
        within = -math.inf < low >= least and math.inf > high <= most  # an address has no bounds
        return (math.floor(low), math.ceil(high)) if within else None  # a cast drops fractions
    return found if name in _MOVED else _rounded(found, made)


def _rounded(interval: Interval, made: Any) -> Interval:
    """Returns bounds that hold after rounding: what is too small for the dtype may be 0, what is too large infinite."""
    half = made.dtype.scalar is tl.float16
    tiny, largest = (2.0**-14, 65504.0) if half else (2.0**-126, 2.0**127)
    low, high = (end + sign * abs(end) * _ROUNDING for end, sign in zip(interval, (-1, 1), strict=True))
    low = -math.inf if low < -largest else 0.0 if 0 < low < tiny else min(low, largest)
    high = math.inf if high > largest else 0.0 if -tiny < high < 0 else max(high, -largest)
    return low, high


def reduced(reduction: Any, made: Any, value: Any, *, place: bool) -> Interval | None:
    """Returns the bounds of what ``tl.reduce`` or a scan made of a value: its elements, their sum, or a place."""
    low, high = interval(value)
    combine, standard = reduction.combine_fn, tl.standard
    shape = value.data.shape[1:]
    number = math.prod(shape) if reduction.axis is None else shape[reduction.axis]
    if place:
        return 0, number - 1
    if combine is standard._sum_combine:
        return result("sum", made, ((min(low, low * number), max(high, high * number)),))
    same = (
        standard._elementwise_max,
        standard._elementwise_min,
        standard._argmax_combine_tie_break_left,
        standard._argmin_combine_tie_break_left,
    )
    return (low, high) if combine in same else None


def _result(name: str, operands: Sequence[Any]) -> Interval | None:
    if name == "sum":
        return operands[0]  # type: ignore[no-any-return]
    if name == "extern_elementwise":
        name, operands = operands[2].removeprefix("__nv_").removesuffix("f"), operands[3]
    if name in _MOVED or name in _CAST:
        return interval(operands[0])
    if name in _POSITIVE:
        return 0.0, math.inf
    if name in _WITHIN_ONE:
        return -1.0, 1.0
    if name in ("fabs", "iabs"):
        low, high = interval(operands[0])
        return max(low, -high, 0), max(-low, high)
    if name.startswith("icmp"):
        known = _outcome(COMPARISONS[name[-2:]], *operands[:2])
        return None if known is None else (int(known), int(known))
    if name == "select":
        (low, high), *_ = ends = [interval(each) for each in chosen(*operands)]
        return min(low for low, _ in ends), max(high for _, high in ends)
    if name == "clampf":
        return interval(operands[1])[0], interval(operands[2])[1]
    if name == "fma":
        return _sum(_product(*operands[:2]), interval(operands[2]))
    if len(operands) == 2 or name[:3] in ("max", "min"):
        return _of_two(name, *operands[:2])
    return None


def _of_two(name: str, a: Any, b: Any) -> Interval | None:
    (low, high), (least, most) = interval(a), interval(b)
    match name:
        case "add" | "fadd":
            return _sum((low, high), (least, most))
        case "sub" | "fsub":
            return _sum((low, high), (-most, -least))
        case "mul" | "fmul":
            return _product(a, b)
        case "fdiv" | "precise_divf" if least > 0:  # 1 / -0.0 is -inf
            return _times((low, high), (1 / most, 1 / least))
        case "sdiv" | "udiv" | "idiv" if least >= 1 and low >= 0:
            return 0, high
        case "srem" | "urem" if least >= 1:
            return (0 if low >= 0 else 1 - most), most - 1
        case "and" if low >= 0 or least >= 0:
            return 0, min([end for start, end in ((low, high), (least, most)) if start >= 0])
        case "lshr" | "ashr" if low >= 0:
            return 0, high
        case "cat" | "join":
            return min(low, least), max(high, most)
    if name[:3] == "max":
        return max(low, least), max(high, most)
    if name[:3] == "min":
        return min(low, least), min(high, most)
    return None


def _sum(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def _product(a: Any, b: Any) -> Interval:
    if a is b:
        low, high = interval(a)
        least = max(low, -high, 0)
        return least * least, max(low * low, high * high)
    return _times(interval(a), interval(b))


def _times(a: Interval, b: Interval) -> Interval:
    products = [x * y if x and y else 0 for x in a for y in b]
    return min(products), max(products)


def _floating(handle: Any) -> bool:
    return bool(handle.dtype.scalar.is_floating()) and handle.data.dtype.kind != "b"


def _of_dtype(handle: Any) -> Interval:
    dtype = handle.dtype.scalar
    if handle.data.dtype.kind == "b":
        return 0, 1
    if dtype.is_floating() or not dtype.is_int():
        return -math.inf, math.inf
    bits = dtype.int_bitwidth
    if bits == 1:
        return 0, 1
    return (0, 2**bits - 1) if dtype.is_int_unsigned() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
