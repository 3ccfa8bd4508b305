"""Writes kernels in which several programs share a long row, so that its second read is from the L2 cache.

Softmax, and norms of long rows, read each row twice: for its sum, and for what is computed with it. Where each program takes a row of
its own, as in TorchInductor's code, the rows that are under way at a time do not fit into L2, and both reads are from memory. Here each
program takes a number as it starts. It sums its part of one row, and then reads the same part of an earlier row again, once all parts of
that row are summed. The programs it waits for have smaller numbers, so they have started, and each sums before it waits itself: no program
waits for ever.

The way of waiting is that of a scan with decoupled look-back (Merrill and Garland, 2016).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelllm_judge.core.syntax import call_name, constant_int, expression, read_names, stored_names
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.inductor.backwards import with_passing_stores
from kernelllm_judge.render.inductor.program import (
    AHEAD,
    MOST_PARTS,
    PARTS,
    Assign,
    KernelSource,
    Launch,
    Program,
    Step,
)
from kernelllm_judge.render.inductor.rows_read_twice import Total, read_rows
from kernelllm_judge.render.inductor.torch_calls import ZEROS
from kernelllm_judge.render.inductor.wrapper import runtime_parameters

TEXT = "Each program sums its part of a row, and reads that part of an earlier row again once all of it is summed."
"""What the docstring of such a kernel says."""

_TOTALS, FINISHED = "totals_ptr", "finished_ptr"
_NUMBER = f"""
number = tl.atomic_add({FINISHED}, 1, sem="relaxed")
part = number % {PARTS}
block = number // {PARTS}
"""
_PART = f"""
part_length = tl.cdiv(r0_numel, {PARTS} * R0_BLOCK) * R0_BLOCK
part_start = part * part_length
part_end = tl.minimum(part_start + part_length, r0_numel)
"""
_PUBLISH = f"""
tl.debug_barrier()
tl.atomic_add({FINISHED} + (1 + block), 1, sem="release")
"""
_WAIT = f"""
summed = tl.atomic_add({FINISHED} + (1 + block), 0, sem="acquire")
while summed < {PARTS}:
    summed = tl.atomic_add({FINISHED} + (1 + block), 0, sem="acquire")
"""


def with_row_parts(program: Program) -> Program:
    """Returns a program in which rows are shared wherever a kernel's configuration says in how many parts.

    Raises:
        RenderError: a kernel has another form than TorchInductor gives a row that is read twice.
    """
    shared = {name: kernel for name, kernel in program.kernels.items() if PARTS in (kernel.chosen or {})}
    if not shared:
        return program
    written = {name: _shared(kernel) for name, kernel in shared.items()}
    steps = tuple(
        each
        for number, step in enumerate(program.steps)
        for each in (
            _launched(step, number, written[step.kernel])
            if isinstance(step, Launch) and step.kernel in written
            else [step]
        )
    )
    kernels = {**program.kernels, **{name: each.kernel for name, each in written.items()}}
    return replace(program, kernels=kernels, steps=steps)


@dataclass(frozen=True)
class _Written:
    """A kernel whose programs share rows, and how many totals each part has."""

    kernel: KernelSource
    totals: int


# --------------------------------------------------------------------------- kernel


def _shared(kernel: KernelSource) -> _Written:
    """Returns a kernel whose programs share rows."""
    function: ast.FunctionDef = copy.deepcopy(kernel.function)
    rows = read_rows(function)
    start, *of_rows = _of_rows(rows.before)
    common = [each for each in rows.before if each not in of_rows and stored_names(each) != {"xoffset"}]
    numbers = {
        name: number for number, name in enumerate(n for each in rows.totals for n in each.accumulators)
    }
    sums: list[ast.stmt] = [*of_rows, *rows.starts, _over_part(rows.first)]
    again: list[ast.stmt] = [copy.deepcopy(start), *copy.deepcopy(of_rows), *_parsed(_WAIT)]
    for total in rows.totals:
        sums.append(total.statement)
        for name, result in zip(total.accumulators, total.results, strict=True):
            before = f"{numbers[name]} * xnumel + " if numbers[name] else ""
            value = result if total.wide else f"{result}[:, None]"
            sums += _parsed(f"tl.store({_TOTALS} + ({before}xindex) * {PARTS} + part, {value})")
            again += _parsed(
                f"{name} = tl.load({_TOTALS} + (({before}block) * {PARTS} + tl.arange(0, {PARTS})))"
            )
        again.append(_Numbers(rows.totals).visit(copy.deepcopy(total.statement)))
    sums += _parsed(_PUBLISH)
    second = with_passing_stores(_over_part(rows.second))
    later = [*map(_once, rows.between), second, *map(_once, rows.after)]
    again += map(_Numbers(rows.totals).visit, map(copy.deepcopy, later))
    function.body = [
        *common,
        *_parsed(_NUMBER),
        start,
        *_parsed(_PART),
        ast.If(expression("xoffset < xnumel"), sums, []),
        *_parsed(f"block = block - {AHEAD}"),
        ast.If(expression("block >= 0"), again, []),
    ]
    added = [ast.arg(name) for name in (_TOTALS, FINISHED)]
    constants = [ast.arg(name, expression("tl.constexpr")) for name in (PARTS, AHEAD)]
    function.args.args = [*function.args.args, *added, *constants]
    types = {**(kernel.types or {}), _TOTALS: "*fp32", FINISHED: "*i32"}
    return _Written(replace(kernel, function=ast.fix_missing_locations(function), types=types), len(numbers))


class _Numbers(ast.NodeTransformer):
    """Makes totals plain numbers: the totals of parts lie along one dimension.

    As blocks of one element they would keep the layout in which they were reduced, and Triton would give it to the row.
    """

    def __init__(self, totals: Sequence[Total]) -> None:
        self._results = {name for each in totals for name in each.results}
        self._accumulators = {name for each in totals for name in each.accumulators}

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        total = isinstance(node.value, ast.Call) and read_names(node.value) & self._accumulators
        result = isinstance(node.value, ast.Name) and node.value.id in self._results
        self.generic_visit(node)
        return node.value if total or result else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        count = sum(isinstance(each, ast.Name) and each.id in self._accumulators for each in node.args)
        if count:  # followed by the dimension, see `_total`
            node.args[count] = ast.Constant(0)
        return self.generic_visit(node)


def _of_rows(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Returns the statements that say which rows a program takes, and what follows from that."""
    found: list[ast.stmt] = []
    known = {"xoffset"}
    for each in statements:
        if stored_names(each) == {"xoffset"}:
            found.extend(_parsed("xoffset = block * XBLOCK"))
        elif read_names(each) & known:
            found.append(each)
            known |= stored_names(each)
    return found


def _over_part(loop: ast.For) -> ast.For:
    """Returns a loop over the columns of a part."""
    result = copy.deepcopy(loop)
    result.iter = expression("tl.range(part_start, part_end, R0_BLOCK)")
    return result


def _once(statement: ast.stmt) -> ast.stmt:
    """Returns a statement that stores something for the whole row in its first part only."""
    match statement:
        case ast.Expr(ast.Call(args=[pointer, value, *mask], keywords=keywords) as call) if (
            call_name(call) == "tl.store"
        ):
            masks = [ast.unparse(each) for each in mask if ast.unparse(each) != "None"]
            chosen = expression(" & ".join([*(f"({each})" for each in masks), "(part == 0)"]))
            return ast.Expr(ast.Call(call.func, [pointer, value, chosen], keywords))
    if "tl.store" in ast.unparse(statement) or "tl.atomic" in ast.unparse(statement):
        raise RenderError(f"`{ast.unparse(statement)}` would be done once for each part of a row.")
    return statement


def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


# --------------------------------------------------------------------------- call


def _launched(step: Launch, number: int, written: _Written) -> Iterator[Step]:
    """Yields the launch of a kernel whose programs share rows, after its buffers."""
    chosen = written.kernel.chosen or {}
    parts, ahead = chosen[PARTS], chosen.get(AHEAD, 0)
    if (
        chosen.get("XBLOCK") != 1
        or parts & (parts - 1)
        or not 1 <= parts <= MOST_PARTS
        or not 1 <= ahead <= MOST_PARTS
    ):
        raise RenderError(
            f"Rows of `{step.kernel}` cannot be shared as its configuration says: {dict(chosen)}."
        )
    original = [a.arg for a in runtime_parameters(written.kernel.function)][: -len((_TOTALS, FINISHED))]
    given: Mapping[str, ast.expr] = dict(zip(original, step.arguments, strict=True))
    if step.grid is not None or step.numels is not None or "xnumel" not in given:
        raise RenderError(f"`{step.kernel}` is launched in another way than over rows.")
    rows = ast.unparse(given["xnumel"])
    totals, finished = f"totals_{number}", f"finished_{number}"
    size = f"{written.totals * parts} * ({rows})"
    yield Assign(totals, expression(f"empty_strided_cuda(({_folded(size)},), (1,), torch.float32)"))
    yield Assign(finished, expression(f"{ZEROS}(({_folded(f'1 + {rows}')},), (1,), torch.int32)"))
    programs = f"(({rows}) + {ahead}) * {parts}"
    arguments = (*step.arguments, expression(totals), expression(finished))
    yield replace(step, arguments=arguments, grid=(expression(_folded(programs)),))


def _folded(text: str) -> str:
    """Returns an expression, as a number if it is one."""
    value = constant_int(expression(text))
    return text if value is None else str(value)
