"""Writes kernels in which several programs share a long row, so that its second read is from the L2 cache.

Softmax, and norms of long rows, read each row twice: for its sum, and for what is computed with it. Where each program takes a row of
its own, as in TorchInductor's code, the rows that are under way at a time do not fit into L2, and both reads are from memory. Here the
programs take turns: a few rows are summed in parts, and then come, part by part, the programs that need the sums. Those wait until
all parts of their row are summed. Programs take their number when they start, so whoever is waited for has started, and nobody waits
for ever.

The way of waiting is that of a scan with decoupled look-back (Merrill and Garland, 2016).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_kernelllm.core.syntax import call_name, constant_int, expression, read_names, stored_names
from pytest_kernelllm.generate.render.errors import RenderError
from pytest_kernelllm.generate.render.inductor.backwards import with_passing_stores
from pytest_kernelllm.generate.render.inductor.program import (
    AHEAD,
    MOST_PARTS,
    PARTS,
    Assign,
    KernelSource,
    Launch,
    Program,
    Step,
)
from pytest_kernelllm.generate.render.inductor.torch_calls import ZEROS
from pytest_kernelllm.generate.render.inductor.wrapper import runtime_parameters

TEXT = (
    "Sums a few rows in parts; programs that need a row's sums wait for its parts, and read it again from L2."
)
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
    written = {name: _with_turns(kernel) for name, kernel in shared.items()}
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


def shares_rows(function: ast.FunctionDef) -> bool:
    """Whether a kernel of TorchInductor reads rows twice and can share them."""
    try:
        _read(function)
    except RenderError:
        return False
    return True


@dataclass(frozen=True)
class _Total:
    """What an accumulator of every column is reduced to, such as ``a, b = online_softmax_reduce(_a, _b, 1, True)``."""

    statement: ast.Assign
    accumulators: tuple[str, ...]
    results: tuple[str, ...]
    """One for each accumulator, in their order."""
    wide: bool
    """Whether the results have a dimension for the columns, of one element."""


@dataclass(frozen=True)
class _Rows:
    """The parts of a kernel that reads rows twice."""

    before: Sequence[ast.stmt]
    starts: Sequence[ast.stmt]
    """The accumulators, as they are at first."""
    first: ast.For
    totals: Sequence[_Total]
    between: Sequence[ast.stmt]
    second: ast.For
    after: Sequence[ast.stmt]


@dataclass(frozen=True)
class _Written:
    """A kernel with turns, and how many totals each part has."""

    kernel: KernelSource
    totals: int


def _read(function: ast.FunctionDef) -> _Rows:
    """Takes a kernel apart.

    Raises:
        RenderError: it has another form.
    """
    loops = [each for each in function.body if isinstance(each, ast.For)]
    if len(loops) != 2 or not {"xoffset", "xmask"} <= stored_names(function):
        raise RenderError(f"`{function.name}` does not read rows twice.")
    first, second = loops
    place, last = map(function.body.index, loops)
    summed = stored_names(first)
    starts = [each for each in function.body[:place] if stored_names(each) & summed]
    accumulators = set[str]().union(*map(stored_names, starts))
    totals, between = [], []
    for statement in function.body[place + 1 : last]:
        total = _total(statement, accumulators)
        if total is not None:
            totals.append(total)
        else:
            between.append(statement)
    after = function.body[last + 1 :]
    rows = _Rows(function.body[:place], starts, first, totals, between, second, after)
    if not totals or not _only_sums(rows, accumulators):
        raise RenderError(
            f"`{function.name}` does more with its rows than to sum them and to read them again."
        )
    return replace(rows, before=[each for each in rows.before if each not in starts])


def _only_sums(rows: _Rows, accumulators: set[str]) -> bool:
    """Whether the first loop sums, and nothing but the totals says what it read; the second loop sums nothing."""
    first, second, text = rows.first, rows.second, ast.unparse(rows.first)
    whole = "tl.range(0, r0_numel, R0_BLOCK)"
    made = {name for name in stored_names(first) | accumulators if name.startswith(("tmp", "_tmp"))}
    computed = {name for name in stored_names(second) if name.startswith(("tmp", "_tmp"))}
    known = set[str]().union(*(stored_names(each) for each in [*_statements(rows.totals), *rows.between]))
    loaded = _accessed([*rows.before, first, *rows.between, second, *rows.after], "tl.load")
    return (
        ast.unparse(first.iter) == ast.unparse(second.iter) == whole
        and text.count("roffset == 0") == text.count("welford_reduce(")
        and all(map(_float32, rows.starts))
        and not any(
            "tl.store" in ast.unparse(each) or "tl.atomic" in ast.unparse(each)
            for each in [*rows.starts, first]
        )
        and {name for each in rows.totals for name in each.accumulators} == accumulators
        and not any(read_names(each) & made for each in [*rows.between, second, *rows.after])
        and not computed & (accumulators | known)
        and not any(read_names(each) & computed or isinstance(each, ast.For) for each in rows.after)
        # Other parts may not have read yet what the first one stores.
        and not _accessed([*rows.between, *rows.after], "tl.store") & loaded
    )


def _accessed(statements: Sequence[ast.stmt], operation: str) -> set[str]:
    """Returns the names of the pointers of all loads or stores."""
    return {
        name
        for each in statements
        for node in ast.walk(each)
        if isinstance(node, ast.Call) and call_name(node) == operation
        for name in read_names(node.args[0])
        if "ptr" in name
    }


def _statements(totals: Sequence[_Total]) -> list[ast.stmt]:
    return [each.statement for each in totals]


def _float32(start: ast.stmt) -> bool:
    """Whether an accumulator is a block of float32."""
    match start:
        case ast.Assign(targets=[ast.Name()], value=ast.Call(args=[ast.List(), *_, kind]) as value):
            return call_name(value) in ("tl.full", "tl.zeros") and ast.unparse(kind) == "tl.float32"
    return False


def _total(statement: ast.stmt, accumulators: set[str]) -> _Total | None:
    if not isinstance(statement, ast.Assign) or not read_names(statement.value) & accumulators:
        return None
    value, wide = statement.value, False
    if isinstance(value, ast.Subscript) and ast.unparse(value.slice) == "(:, None)":
        value, wide = value.value, True
    if not isinstance(value, ast.Call):
        return None
    names = [each.id for each in value.args if isinstance(each, ast.Name) and each.id in accumulators]
    given = [ast.unparse(each) for each in value.args[: len(names) + 1]]
    target = statement.targets[0]
    results = [each.id for each in ast.walk(target) if isinstance(each, ast.Name)]
    if given != [*names, "1"] or len(results) != len(names) or set(names) != read_names(value) & accumulators:
        return None
    return _Total(statement, tuple(names), tuple(results), wide)


# --------------------------------------------------------------------------- kernel


def _with_turns(kernel: KernelSource) -> _Written:
    """Returns a kernel in which turns of summing and of reading again follow each other."""
    function: ast.FunctionDef = copy.deepcopy(kernel.function)
    rows = _read(function)
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

    def __init__(self, totals: Sequence[_Total]) -> None:
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
    """Yields the launch of a kernel with turns, after its buffers."""
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
