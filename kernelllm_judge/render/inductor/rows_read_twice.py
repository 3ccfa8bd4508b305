"""Takes a kernel apart that reads each row twice: for the row's totals, and for what is computed with them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelllm_judge.core.syntax import call_name, read_names, stored_names
from kernelllm_judge.render.errors import RenderError


@dataclass(frozen=True)
class Total:
    """What an accumulator of every column is reduced to, such as ``a, b = online_softmax_reduce(_a, _b, 1, True)``."""

    statement: ast.Assign
    accumulators: tuple[str, ...]
    results: tuple[str, ...]
    """One for each accumulator, in their order."""
    wide: bool
    """Whether the results have a dimension for the columns, of one element."""


@dataclass(frozen=True)
class Rows:
    """The parts of a kernel that reads rows twice."""

    before: Sequence[ast.stmt]
    starts: Sequence[ast.stmt]
    """The accumulators, as they are at first."""
    first: ast.For
    totals: Sequence[Total]
    between: Sequence[ast.stmt]
    second: ast.For
    after: Sequence[ast.stmt]


def shares_rows(function: ast.FunctionDef) -> bool:
    """Whether a kernel of TorchInductor reads rows twice and can share them."""
    try:
        read_rows(function)
    except RenderError:
        return False
    return True


def read_rows(function: ast.FunctionDef) -> Rows:
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
    rows = Rows(function.body[:place], starts, first, totals, between, second, after)
    if not totals or not _only_sums(rows, accumulators):
        raise RenderError(
            f"`{function.name}` does more with its rows than to sum them and to read them again."
        )
    return replace(rows, before=[each for each in rows.before if each not in starts])


def _only_sums(rows: Rows, accumulators: set[str]) -> bool:
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


def _statements(totals: Sequence[Total]) -> list[ast.stmt]:
    return [each.statement for each in totals]


def _float32(start: ast.stmt) -> bool:
    """Whether an accumulator is a block of float32."""
    match start:
        case ast.Assign(targets=[ast.Name()], value=ast.Call(args=[ast.List(), *_, kind]) as value):
            return call_name(value) in ("tl.full", "tl.zeros") and ast.unparse(kind) == "tl.float32"
    return False


def _total(statement: ast.stmt, accumulators: set[str]) -> Total | None:
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
    return Total(statement, tuple(names), tuple(results), wide)
