"""Writes kernels that sum along rows and along columns in one pass, as the backward pass of a norm does.

Each program of such a kernel takes some rows, computes what it has to for each of them, and adds up their columns. TorchInductor
("mix-order reductions") has one workspace for the sums of all programs, and leaves it to ``torch.sum`` to add those up. Here each
sum has a buffer of its own, and a kernel adds up its parts.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_kernelllm.core.syntax import (
    Substitute,
    call_name,
    constant_int,
    expression,
    read_names,
    stored_names,
)
from pytest_kernelllm.generate.render.errors import RenderError
from pytest_kernelllm.generate.render.inductor.program import (
    ROWS,
    Assign,
    KernelSource,
    Launch,
    Program,
    Step,
)
from pytest_kernelllm.generate.render.inductor.torch_calls import contiguous_strides, is_allocation
from pytest_kernelllm.generate.render.inductor.wrapper import runtime_parameters

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
_BLOCKS = {"XBLOCK": 32, "R0_BLOCK": 64, "num_warps": 4, "num_stages": 1}
"""A line of memory in each row, and enough programs for a GPU from a few thousand columns on."""


def with_column_sums(program: Program) -> Program:
    """Returns a program in which kernels that sum along both, if there are any, write the columns' sums to buffers of their own.

    Raises:
        RenderError: the columns are not added up in float32, or the text does something else with their parts.
    """
    if not any(kernel.rows for kernel in program.kernels.values()):
        return program
    rewriter = _Rewriter(program)
    steps = tuple(each for step in program.steps for each in rewriter.step(step))
    for step in steps:
        values = step.arguments if isinstance(step, Launch) else (step.value,)
        for name in sorted(rewriter.parts):
            if any(name in read_names(value) for value in values):
                raise RenderError(f"`call` does something with `{name}` that is not understood.")
    program = replace(program, kernels=rewriter.kernels, steps=steps)
    return _without_casts(program, rewriter.sums)


class _Rewriter:
    """Goes through the steps once and keeps which parts each workspace stands for."""

    def __init__(self, program: Program) -> None:
        self.kernels: dict[str, KernelSource] = dict(program.kernels)
        self.parts: dict[str, tuple[ast.expr, ast.expr]] = {}
        """How many parts a workspace has, and how many columns, by its name."""
        self.sums: set[str] = set()
        """The kernels that add up parts."""
        self._mixed = {name: kernel for name, kernel in program.kernels.items() if kernel.rows}
        self._workspaces = {
            ast.unparse(self._given(s)[WORKSPACE]) for s in program.steps if self._is_mixed(s)
        }

        self._allocated = {s.name for s in program.steps if isinstance(s, Assign) and is_allocation(s.value)}

    def step(self, step: Step) -> Iterator[Step]:
        """Yields what takes the place of a step."""
        if isinstance(step, Launch) and self._is_mixed(step):
            yield from self._mixed_launch(step)
        elif isinstance(step, Assign) and step.name in self._workspaces and is_allocation(step.value):
            return
        elif isinstance(step, Assign) and (found := _summed(step.value)) and found[0] in self.parts:
            yield from self._sum(step.name, *found)
        else:
            yield step

    def _is_mixed(self, step: Step) -> bool:
        return isinstance(step, Launch) and step.kernel in self._mixed

    def _given(self, step: Step) -> Mapping[str, ast.expr]:
        assert isinstance(step, Launch)
        parameters = runtime_parameters(self._mixed[step.kernel].function)
        return dict(zip([a.arg for a in parameters], step.arguments, strict=True))

    def _mixed_launch(self, step: Launch) -> Iterator[Step]:
        kernel, given = self._mixed[step.kernel], self._given(step)
        workspace = ast.unparse(given[WORKSPACE])
        rows = (kernel.chosen or {}).get(ROWS, kernel.rows)
        parts = expression(f"({ast.unparse(given['xnumel'])} + {rows - 1}) // {rows}")
        self.parts[workspace] = parts, given["r0_numel"]
        function, sums = _with_buffers(kernel, rows)
        for number in range(sums):
            yield Assign(f"{workspace}_{number}", _empty([parts, given["r0_numel"]]))
        types = {**(kernel.types or {}), **{f"{WORKSPACE}{number}": "*fp32" for number in range(sums)}}
        self.kernels[step.kernel] = replace(kernel, function=function, types=types)
        buffers = {WORKSPACE: [expression(f"{workspace}_{number}") for number in range(sums)]}
        arguments = [value for name, one in given.items() for value in buffers.get(name, [one])]
        yield replace(step, arguments=tuple(arguments), grid=(parts,))

    def _sum(
        self, name: str, workspace: str, number: int, shape: Sequence[ast.expr] | None
    ) -> Iterator[Step]:
        parts, columns = self.parts[workspace]
        count = constant_int(columns)
        kernel = f"triton_red_column_sums_{count}" if count else "triton_red_column_sums"
        if kernel not in self.kernels:
            self.kernels[kernel] = _sum_kernel(kernel, count)
            self.sums.add(kernel)
        if name not in self._allocated:
            yield Assign(name, _empty(shape or [columns]))
        arguments = expression(f"{workspace}_{number}"), expression(name), columns, parts
        yield Launch(kernel, arguments)


def _with_buffers(kernel: KernelSource, rows: int) -> tuple[ast.FunctionDef, int]:
    """Returns a copy of a kernel in which each sum of columns has a buffer, and how many there are."""
    if any("fp64" in kind for kind in (kernel.types or {}).values()):
        raise RenderError(f"`{kernel.name}` adds up columns of float64 in float32.")
    function: ast.FunctionDef = copy.deepcopy(kernel.function)
    masked = "xmask" in stored_names(function)
    sums = 0
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr="store"), args=[ast.BinOp(right=column), value, *_]) if (
                WORKSPACE in read_names(node.args[0])
            ):
                number = _number(node.args[0])
                sums = max(sums, number + 1)
                row = "tl.program_id(0) * r0_numel"
                node.args[0] = expression(f"{WORKSPACE}{number} + ({row} + {ast.unparse(column)})")
            case ast.Call(func=ast.Attribute(attr="sum"), args=[value, ast.Constant(0)]) if masked:
                # A block of rows may reach past the last one.
                node.args[0] = expression(f"tl.where(xmask, {ast.unparse(value)}, 0)")
    accumulators = [f"accum{number}" for number in range(sums)]
    if not sums or any(not _adds_up(function, name) for name in accumulators):
        raise RenderError(f"`{kernel.name}` does not add up its columns.")
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


def _adds_up(function: ast.FunctionDef, name: str) -> bool:
    """Returns whether an accumulator gets nothing but itself plus something."""
    values: dict[str, ast.expr] = {}  # the last one, which is the loop's
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(target)], value=assigned):
                values[target] = assigned
    value = values.get(name)
    if isinstance(value, ast.Name):
        value = values.get(value.id)
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and name in read_names(value)


def _summed(value: ast.expr) -> tuple[str, int, Sequence[ast.expr] | None] | None:
    """Reads ``workspace[2 * … : …].view(…).sum(dim=0)``, perhaps with another ``.view([…])`` and ``.to(…)``.

    Returns the name of the workspace, the number of the sum and the shape of the result, if the text gives one.
    """
    shape: Sequence[ast.expr] | None = None
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        match value.func.attr, value.args:
            case "sum", []:
                inner = value.func.value
                match inner:
                    case ast.Call(
                        func=ast.Attribute(
                            value=ast.Subscript(
                                value=ast.Name(name), slice=ast.Slice(lower=ast.expr() as lower)
                            )
                        )
                    ):
                        while isinstance(lower, ast.BinOp):
                            lower = lower.left
                        number = constant_int(lower)
                        return None if number is None else (name, number, shape)
                return None
            case "view", [ast.List(sizes)]:
                shape = sizes
            case "to", [_]:
                pass
            case _:
                return None
        value = value.func.value
    return None


def _empty(shape: Sequence[ast.expr]) -> ast.expr:
    sizes, strides = (", ".join(map(ast.unparse, each)) + "," for each in (shape, contiguous_strides(shape)))
    return expression(f"empty_strided_cuda(({sizes}), ({strides}), torch.float32)")


def _sum_kernel(name: str, columns: int | None) -> KernelSource:
    function = ast.parse(_SUM).body[0]
    assert isinstance(function, ast.FunctionDef)
    if columns is not None:
        function.body.insert(0, ast.parse(f"xnumel = {columns}").body[0])
        if columns % _BLOCKS["XBLOCK"] == 0:
            function.body[3] = ast.parse("xmask = tl.full([XBLOCK], True, tl.int1)[:, None]").body[0]
    function.name = name
    types = {"in_ptr0": "*fp32", "xnumel": "i32", "r0_numel": "i32"}
    return KernelSource(name, function, kind="reduction", inner=False, types=types, chosen=_BLOCKS)


# --------------------------------------------------------------------------- casts


def _without_casts(program: Program, sums: set[str]) -> Program:
    """Returns a program in which sums that are only cast to another dtype are stored as that."""
    steps = list(program.steps)
    made = {ast.unparse(s.arguments[1]): s for s in steps if isinstance(s, Launch) and s.kernel in sums}
    returned = {name for value in program.returns for name in read_names(value)}
    for cast in [s for s in steps if isinstance(s, Launch) and s.kernel not in sums]:
        into = _casts(program.kernels[cast.kernel], cast)
        elsewhere = returned.union(*(_read(s) for s in steps if s is not cast and s not in made.values()))
        if not into or not into.keys() <= made.keys() or into.keys() & elsewhere:
            continue
        at = steps.index(cast)
        for name, result in into.items():
            parts, _, *sizes = made[name].arguments
            steps.insert(at, replace(made[name], arguments=(parts, result, *sizes)))
        gone = [cast, *(made[name] for name in into)]
        steps = [s for s in steps if s not in gone and not (isinstance(s, Assign) and s.name in into)]
    return replace(program, steps=tuple(steps))


def _read(step: Step) -> set[str]:
    values = step.arguments if isinstance(step, Launch) else (step.value,)
    return {name for value in values for name in read_names(value)}


def _casts(kernel: KernelSource, launch: Launch) -> dict[str, ast.expr]:
    """Returns where a kernel stores each buffer in another dtype, if it does nothing else."""
    parameters = [a.arg for a in runtime_parameters(kernel.function)]
    given = dict(zip(parameters, launch.arguments, strict=True))
    values: dict[str, tuple[str, str]] = {}
    """The pointer and the place from which a value was loaded, by its name."""
    found: dict[str, ast.expr] = {}
    for node in kernel.function.body:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value) if name.startswith("tmp"):
                if (place := _place(value, "tl.load")) is None:
                    match value:
                        case ast.Call(func=ast.Attribute(value=ast.Name(cast), attr="to")) if cast in values:
                            place = values[cast]
                        case _:
                            return {}
                values[name] = place
            case ast.Expr(value=ast.Call(args=[_, ast.Name(stored), *_]) as call) if stored in values:
                pointer, offset = values[stored]
                place = _place(call, "tl.store")
                if place is None or place[1] != offset or pointer not in given or place[0] not in given:
                    return {}
                found[ast.unparse(given[pointer])] = given[place[0]]
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)) if (
                name[0] in "xX"
            ):
                pass
            case _:
                return {}
    return found


def _place(value: ast.expr, call: str) -> tuple[str, str] | None:
    """Returns the pointer and the offset of a load, perhaps with a cast, or a store."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Call() as inner, attr="to")):
            return _place(inner, call)
        case ast.Call(args=[ast.BinOp(left=ast.Name(pointer), op=ast.Add(), right=offset), *_]) if (
            call_name(value) == call
        ):
            return pointer, ast.unparse(offset)
    return None
