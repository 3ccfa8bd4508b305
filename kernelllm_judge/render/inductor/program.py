"""The program in a compiler's output code, independent of how that code is written."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kernelllm_judge.core.syntax import read_names
from kernelllm_judge.render.visible import Spec

Kind = Literal["pointwise", "reduction", "template"]


ROWS = "RSPLIT_SIZE"
"""The block size that says how many rows a program takes whose columns it adds up, too."""


@dataclass(frozen=True)
class KernelSource:
    """A Triton kernel as written, with the launch hints of its decorator."""

    name: str
    function: ast.FunctionDef
    helpers: tuple[ast.FunctionDef, ...] = ()
    """Other ``@triton.jit`` functions in its source, which it may call."""
    kind: Kind = "pointwise"
    types: Mapping[str, str] = field(default_factory=dict)
    """Triton's type of each parameter, if the decorator has it: ``*fp32``, ``*bf16``, ``i32``."""
    rows: int = 0
    """Rows whose columns each program adds up as well, see ``column_sums``; 0 for other kernels."""
    chosen: Mapping[str, int] = field(default_factory=dict)
    """The block sizes, ``num_warps`` and ``num_stages`` that its compiler or the search chose, if they say so."""


@dataclass(frozen=True)
class Assign:
    """An assignment ``name = value``: an allocation, a library call or a size."""

    name: str
    value: ast.expr


@dataclass(frozen=True)
class Do:
    """A call for its effect, such as a matrix multiplication into ``out=``."""

    value: ast.expr


@dataclass(frozen=True)
class Launch:
    """A kernel launch with the arguments for all parameters that are not constexpr, in order."""

    kernel: str
    arguments: tuple[ast.expr, ...]
    numels: tuple[ast.expr, ...] | None = None
    """The number of elements along x, y and z that the grid covers; None for the kernel's ``xnumel`` and so on."""
    blocks: Mapping[str, int] | None = None
    """The block sizes (``XBLOCK``…), if the text chooses them."""
    warps: int = 0
    grid: tuple[ast.expr, ...] | None = None
    """The number of programs along each axis, if the text says so and not the number of elements."""


Step = Assign | Do | Launch


def names_read(step: Step) -> set[str]:
    """Returns the names in what a step reads or is given."""
    values = step.arguments if isinstance(step, Launch) else (step.value,)
    return {name for value in values for name in read_names(value)}


Layout = tuple[Sequence[ast.expr], Sequence[ast.expr]]
"""The shape and strides of a tensor."""


@dataclass(frozen=True)
class Program:
    """The kernels and the steps that run them."""

    kernels: Mapping[str, KernelSource]
    arguments: tuple[str, ...]
    steps: tuple[Step, ...]
    returns: tuple[ast.expr, ...]
    layouts: Mapping[str, Layout]
    """The asserted layouts of arguments and intermediate buffers, by name."""


@dataclass(frozen=True)
class Binding:
    """What the arguments and results of a program are in its target."""

    arguments: Mapping[str, str]
    """The expression over ``self`` and forward's parameters for each argument of the program."""
    output: Any
    """See ``sections.Section.output``."""
    scalars: Mapping[str, str]
    """The expressions for named numbers in the kernels, by name."""
    specs: Mapping[str, Spec]
    """What ``forward`` can read, by expression."""
