"""Writes kernels that sum along rows and along columns in one pass, as the backward pass of a norm does.

Each program of such a kernel takes some rows, computes what it has to for each of them, and adds up their columns. TorchInductor
("mix-order reductions") has one workspace for the sums of all programs, and leaves it to ``torch.sum`` to add those up. Here each
sum has a buffer of its own, and a kernel adds up its parts.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelllm_judge.core.syntax import (
    Substitute,
    call_name,
    constant_int,
    expression,
    read_names,
    stored_names,
)
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.inductor.program import ROWS, Assign, KernelSource, Launch, Program, Step
from kernelllm_judge.render.inductor.torch_calls import contiguous_strides, is_allocation
from kernelllm_judge.render.inductor.wrapper import runtime_parameters

WORKSPACE = "ws_ptr"
"""The parameter that holds the sums of all programs."""

_SUM = """
def kernel(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    _tmp0 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        tmp1 = tl.load(in_ptr0 + (xindex + xnumel * r0_index), r0_mask & xmask, eviction_policy="evict_first", other=0.0)
        _tmp0 = _tmp0 + tmp1
    tmp2 = tl.sum(_tmp0, 1)[:, None]
    tl.store(out_ptr0 + xindex, tmp2, xmask)
"""
_SUMMED = re.compile(
    r"(?P<workspace>\w+)\[(?P<number>\d+) \* .+\]\.view\(.+, (?P<columns>.+?)\)\.sum\(dim=0\)"
    r"(\.view\(\[(?P<shape>.*)\]\))?(\.to\((?P<dtype>.+)\))?"
)
"""How Inductor adds up the parts of a sum, of which the workspace has several one after the other."""
_BLOCKS = {"XBLOCK": 32, "R0_BLOCK": 64, "num_warps": 4, "num_stages": 1}
"""A line of memory in each row, and enough programs for a GPU from a few thousand columns on."""


def with_column_sums(program: Program) -> Program:
    """Returns a program in which kernels that sum along both, if there are any, write the columns' sums to buffers of their own.

    The text is TorchInductor's; where it does something else with its sums, the judge finds wrong gradients.
    """
    if not any(kernel.rows for kernel in program.kernels.values()):
        return program
    rewriter = _Rewriter(program)
    steps = tuple(each for step in program.steps for each in rewriter.step(step))
    return replace(program, kernels=rewriter.kernels, steps=steps)


@dataclass(frozen=True)
class _Parts:
    """What a workspace holds after a launch."""

    count: ast.expr
    columns: ast.expr


class _Rewriter:
    """Goes through the steps once and keeps which parts each workspace stands for."""

    def __init__(self, program: Program) -> None:
        self.kernels: dict[str, KernelSource] = dict(program.kernels)
        self.sums: set[str] = set()
        """The kernels that add up parts."""
        self._mixed = {name: kernel for name, kernel in program.kernels.items() if kernel.rows}
        launches = [s for s in program.steps if isinstance(s, Launch) and s.kernel in self._mixed]
        self.workspaces = {ast.unparse(self._given(launch)[WORKSPACE]) for launch in launches}
        self._parts: dict[str, _Parts] = {}
        self._allocated = {s.name for s in program.steps if isinstance(s, Assign) and is_allocation(s.value)}

    def step(self, step: Step) -> Iterator[Step]:
        """Yields what takes the place of a step."""
        if isinstance(step, Launch) and step.kernel in self._mixed:
            yield from self._launch(step)
        elif isinstance(step, Assign) and step.name in self.workspaces and is_allocation(step.value):
            return
        elif (
            isinstance(step, Assign)
            and (found := _SUMMED.fullmatch(ast.unparse(step.value)))
            and found["workspace"] in self._parts
        ):
            yield from self._sum(step.name, found)
        else:
            yield step

    def _given(self, step: Launch) -> Mapping[str, ast.expr]:
        parameters = [a.arg for a in runtime_parameters(self._mixed[step.kernel].function)]
        return dict(zip(parameters, step.arguments, strict=True))

    def _launch(self, step: Launch) -> Iterator[Step]:
        kernel, given = self._mixed[step.kernel], self._given(step)
        workspace, columns = ast.unparse(given[WORKSPACE]), given["r0_numel"]
        rows = kernel.chosen.get(ROWS, kernel.rows)
        function, sums = _with_buffers(kernel, rows)
        count = expression(f"({ast.unparse(given['xnumel'])} + {rows - 1}) // {rows}")
        self._parts[workspace] = _Parts(count, columns)
        names = [f"{workspace}_{number}" for number in range(sums)]
        for name in names:
            yield Assign(name, _empty([count, columns], "torch.float32"))
        types = {**kernel.types, **{f"{WORKSPACE}{number}": "*fp32" for number in range(sums)}}
        self.kernels[step.kernel] = replace(kernel, function=function, types=types)
        buffers = {WORKSPACE: [expression(name) for name in names]}
        arguments = [value for name, one in given.items() for value in buffers.get(name, [one])]
        yield replace(step, arguments=tuple(arguments), grid=(count,))

    def _sum(self, name: str, found: re.Match[str]) -> Iterator[Step]:
        workspace, number, parts = found["workspace"], int(found["number"]), self._parts[found["workspace"]]
        columns = constant_int(parts.columns)
        kernel = f"triton_red_column_sums_{columns}" if columns else "triton_red_column_sums"
        while kernel in self.kernels and kernel not in self.sums:
            kernel += "_"
        if kernel not in self.sums:
            self.kernels[kernel] = _sum_kernel(kernel, columns)
            self.sums.add(kernel)
        if name not in self._allocated:
            shape = expression(f"({found['shape'] or ast.unparse(parts.columns)},)")
            assert isinstance(shape, ast.Tuple)
            yield Assign(name, _empty(shape.elts, found["dtype"] or "torch.float32"))
        source = expression(f"{workspace}_{number}")
        yield Launch(kernel, (source, expression(name), parts.columns, parts.count))


# --------------------------------------------------------------------------- kernels


def _with_buffers(kernel: KernelSource, rows: int) -> tuple[ast.FunctionDef, int]:
    """Returns a copy of a kernel in which each sum of columns has a buffer, and how many there are."""
    if rows < 1 or rows & (rows - 1):  # or blocks of rows would reach into those of the next program
        raise RenderError(f"`{kernel.name}` takes {rows} rows a program, which is no power of two.")
    function: ast.FunctionDef = copy.deepcopy(kernel.function)
    masked = "xmask" in stored_names(function)
    sums = 0
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr="store"), args=[ast.BinOp(right=column), *_]) if (
                WORKSPACE in read_names(node.args[0])
            ):
                number = _number(node.args[0])
                sums = max(sums, number + 1)
                row = "tl.program_id(0) * r0_numel"
                node.args[0] = expression(f"{WORKSPACE}{number} + ({row} + {ast.unparse(column)})")
            case ast.Call(func=ast.Attribute(attr="sum"), args=[value, ast.Constant(0)]) if masked:
                # A block of rows may reach past the last one.
                node.args[0] = expression(f"tl.where(xmask, {ast.unparse(value)}, 0)")
    arguments = []
    for argument in function.args.args:
        buffers = [ast.arg(f"{WORKSPACE}{number}") for number in range(sums)]
        arguments += buffers if argument.arg == WORKSPACE else [argument] if argument.arg != ROWS else []
    function.args.args = arguments
    constants = {ROWS: ast.Constant(rows)}
    function.body = [Substitute(constants).apply(statement) for statement in function.body]
    return ast.fix_missing_locations(function), sums


def _number(pointer: ast.expr) -> int:
    """Returns which sum is stored: Inductor multiplies its number by the number of programs."""
    for node in ast.walk(pointer):
        match node:
            case ast.BinOp(left=ast.Constant(int(number)), op=ast.Mult(), right=ast.Call() as call) if (
                call_name(call) == "tl.num_programs"
            ):
                return number
    raise RenderError(f"The pointer `{ast.unparse(pointer)}` is not understood.")


def _sum_kernel(name: str, columns: int | None) -> KernelSource:
    function = ast.parse(_SUM).body[0]
    assert isinstance(function, ast.FunctionDef)
    if columns is not None:
        function.body.insert(0, ast.parse(f"xnumel = {columns}").body[0])
        if columns % _BLOCKS["XBLOCK"] == 0:
            function.body[3] = ast.parse("xmask = tl.full([XBLOCK], True, tl.int1)[:, None]").body[0]
    function.name = name
    types = {"in_ptr0": "*fp32", "xnumel": "i32", "r0_numel": "i32"}
    return KernelSource(name, function, kind="reduction", types=types, chosen=_BLOCKS)


def _empty(shape: Sequence[ast.expr], dtype: str) -> ast.expr:
    sizes, strides = (", ".join(map(ast.unparse, each)) + "," for each in (shape, contiguous_strides(shape)))
    return expression(f"empty_strided_cuda(({sizes}), ({strides}), {dtype})")
