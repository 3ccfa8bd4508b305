"""What a compiler-made completion does, whichever dialect it was written in."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytest_kernelllm.core.records import Scalar, TensorSpec

Kind = Literal["pointwise", "reduction", "persistent"]


@dataclass(frozen=True)
class Kernel:
    """A Triton kernel as written, with what its decorator says about how to launch it."""

    name: str
    function: ast.FunctionDef
    helpers: tuple[ast.FunctionDef, ...] = ()
    """Other ``@triton.jit`` functions of its source, which it calls."""
    kind: Kind = "pointwise"
    hints: Mapping[str, int] | None = None
    """Elements along each of ``x``, ``y``, ``z``, ``r`` when it was written, rounded up to powers of two."""
    inner: bool = True
    """A reduction along contiguous memory."""
    types: Mapping[str, str] | None = None
    """Triton's type of each parameter where the decorator says it: ``*fp32``, ``*bf16``, ``i32``."""


@dataclass(frozen=True)
class Assign:
    """``name = value``: an allocation, a call to a vendor library, a size."""

    name: str
    value: ast.expr


@dataclass(frozen=True)
class Do:
    """A call for its effect, such as a matrix multiplication into ``out=``."""

    value: ast.expr


@dataclass(frozen=True)
class Launch:
    """A kernel launch: arguments of the kernel's parameters that are not constexpr, in order."""

    kernel: str
    arguments: tuple[ast.expr, ...]
    numels: tuple[ast.expr, ...] | None = None
    """Elements along x, y, z that the grid covers; None: the kernel's own ``xnumel``…"""
    blocks: Mapping[str, int] | None = None
    """``XBLOCK``… where the text chose them."""
    warps: int = 0


Step = Assign | Do | Launch


@dataclass(frozen=True)
class Layout:
    """Shape and strides that the text asserts of a tensor."""

    shape: tuple[str, ...]
    strides: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """Kernels and the steps that run them."""

    kernels: Mapping[str, Kernel]
    arguments: tuple[str, ...]
    steps: tuple[Step, ...]
    returns: tuple[ast.expr, ...]
    layouts: Mapping[str, Layout]
    """What the text asserts about arguments and intermediate buffers, by name."""


@dataclass(frozen=True)
class Binding:
    """How a program is tied to its target."""

    arguments: Mapping[str, str]
    """Each argument of the program as an expression over ``self`` and forward's parameters."""
    output: Any
    """See ``sections.Section.output``."""
    scalars: Mapping[str, str]
    """Names of numbers in the kernels, and the expressions that give their values."""
    specs: Mapping[str, TensorSpec | Scalar]
    """What ``forward`` can read, by expression."""
