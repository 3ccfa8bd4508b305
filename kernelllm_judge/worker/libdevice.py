"""Computes libdevice's functions in Triton's interpreter, in the precision of their arguments.

The ``fast_…`` functions lose accuracy for large arguments as on a GPU, which computes them from the
exponential and logarithm to base 2, or reduces angles in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

Function = Callable[..., Any]

LARGEST_DIVISOR = 2.0**126
"""``fast_dividef`` returns 0 for larger finite ones."""


def compute_libdevice() -> None:
    """Patches this process's interpreter."""

    def call(
        builder: Any, library: str, path: str, symbol: str, handles: list[Any], result: Any, pure: bool
    ) -> Any:
        with np.errstate(all="ignore"):
            values = find(symbol)(*(handle.data for handle in handles))
        dtype = _numpy_dtype(result.scalar)
        return TensorHandle(np.asarray(values).astype(dtype, copy=False), result.scalar)

    InterpreterBuilder.create_extern_elementwise = call


def find(symbol: str) -> Function:
    """Returns the function of a symbol of libdevice, such as ``__nv_erff``.

    Raises:
        NotImplementedError: there is none here.
    """
    name = symbol.removeprefix("__nv_")
    # The precision is a last letter (`sqrtf`), or the first where the rounding comes last (`fsqrt_rn`).
    spellings = (name, name[1:], name[:-1]) if name.endswith("_rn") else (name, name[:-1])
    for spelling in spellings:
        if spelling in FUNCTIONS:
            return FUNCTIONS[spelling]
    raise NotImplementedError(f"Triton's interpreter cannot compute libdevice's `{symbol}`")


def _numpy_dtype(dtype: Any) -> Any:
    kind = "int" if dtype.is_int() else "float"
    return np.dtype(f"{kind}{dtype.primitive_bitwidth}")


def _by_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Function:
    return lambda x: function(torch.from_numpy(np.array(x))).numpy()


def _rounded(x: Any) -> Any:
    """Rounds halves away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


def _fused(x: Any, y: Any, z: Any) -> Any:
    return x.astype(np.longdouble) * y + z


def _turned(function: Function) -> Function:
    """Computes the sine or cosine of a float32 by way of the part of a turn."""
    return lambda x: function(np.mod(x * np.float32(0.5 / np.pi), np.float32(1)) * np.float32(2 * np.pi))


def _powers(base: float) -> Function:
    return lambda x: np.exp2(x * np.float32(np.log2(base)))


def _logarithm(base: float) -> Function:
    return lambda x: np.log2(x) * np.float32(1 / np.log2(base))


def _quick_tanh(x: Any) -> Any:
    """Keeps 11 bits, as the GPU's instruction does."""
    mantissa, exponent = np.frexp(np.tanh(x))
    return np.ldexp(np.rint(mantissa * 2048) / 2048, exponent).astype(x.dtype)


def _quick_ratio(x: Any, y: Any) -> Any:
    huge = np.isfinite(y) & (np.abs(y) > LARGEST_DIVISOR)
    return np.where(huge, np.where(np.isinf(x), np.nan, np.copysign(0, x) * np.sign(y)), x / y)


_QUICK: dict[str, Function] = {
    "fast_sin": _turned(np.sin),
    "fast_cos": _turned(np.cos),
    "fast_tan": lambda x: _turned(np.sin)(x) / _turned(np.cos)(x),
    "fast_exp": _powers(np.e),
    "fast_exp10": _powers(10),
    "fast_log": _logarithm(np.e),
    "fast_log2": np.log2,
    "fast_log10": _logarithm(10),
    "fast_pow": lambda x, y: np.exp2(y * np.log2(x)),
    "fast_tanh": _quick_tanh,
    "fast_fdivide": _quick_ratio,
}
_TORCH = {
    "erf": torch.special.erf,
    "erfc": torch.special.erfc,
    "erfcx": torch.special.erfcx,
    "erfinv": torch.special.erfinv,
    "normcdf": torch.special.ndtr,
    "normcdfinv": torch.special.ndtri,
    "lgamma": torch.special.gammaln,
    "j0": torch.special.bessel_j0,
    "j1": torch.special.bessel_j1,
    "y0": torch.special.bessel_y0,
    "y1": torch.special.bessel_y1,
    "cyl_bessel_i0": torch.special.i0,
    "cyl_bessel_i1": torch.special.i1,
}
_TO_INTEGER = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
_SAME_NAME = (
    *(np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sqrt, np.cbrt, np.hypot, np.ldexp),
    *(np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh),
    *(np.floor, np.ceil, np.trunc, np.rint, np.fabs, np.fmod, np.copysign, np.nextafter),
    *(np.isnan, np.isinf, np.isfinite, np.signbit),
)
_ARC = (np.arcsin, np.arccos, np.arctan, np.arcsinh, np.arccosh, np.arctanh)

FUNCTIONS: dict[str, Function] = {
    **{function.__name__: function for function in _SAME_NAME},
    **{f"a{function.__name__.removeprefix('arc')}": function for function in _ARC},
    **{name: _by_torch(function) for name, function in _TORCH.items()},
    **_QUICK,
    "atan2": np.arctan2,
    "abs": np.abs,
    "llabs": np.abs,
    "finite": np.isfinite,
    "nearbyint": np.rint,
    "llrint": np.rint,
    "round": _rounded,
    "llround": _rounded,
    "scalbn": np.ldexp,
    "pow": np.power,
    "powi": lambda x, y: np.power(x, y.astype(x.dtype)),
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x.astype(np.float64), 2)),
    "cospi": lambda x: np.cos(np.pi * np.fmod(x.astype(np.float64), 2)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "fdim": lambda x, y: np.where(x <= y, 0, x - y),
    "saturate": lambda x: np.fmin(np.fmax(x, 0), 1),
    "fma": _fused,
    "fmaf_rn": _fused,
    "fma_rn": _fused,
    "add_rn": np.add,
    "sub_rn": np.subtract,
    "mul_rn": np.multiply,
    "div_rn": np.divide,
    "rcp_rn": np.reciprocal,
    "sqrt_rn": np.sqrt,
    "rsqrt_rn": lambda x: 1 / np.sqrt(x.astype(np.float64)),
    "float_as_int": lambda x: x.view(np.int32),
    "float_as_uint": lambda x: x.view(np.int32),
    "int_as_float": lambda x: x.view(np.float32),
    "uint_as_float": lambda x: x.view(np.float32),
    "double_as_longlong": lambda x: x.view(np.int64),
    "longlong_as_double": lambda x: x.view(np.float64),
    **{f"float2int_{mode}": function for mode, function in _TO_INTEGER.items()},
    **{f"{kind}2float_rn": lambda x: x for kind in ("int", "uint", "ll", "ull", "double")},
    **{f"{kind}2double_rn": lambda x: x for kind in ("int", "uint", "ll", "ull")},
}
"""The functions by the names of their symbols without ``__nv_`` and without the letter of their precision."""
