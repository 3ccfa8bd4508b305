"""Names the parts of ``self`` that a ``forward`` reads several times.

``nn.Module`` looks each attribute up in three dictionaries, and ``nn.Sequential`` counts its parts at each subscript:
``self.blocks[9].expand_conv[1].running_mean`` takes 3.3 µs, measured on a CPU, and each batch norm of a deep network
reads four such attributes.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kernelllm_judge.render.inductor.names import Names, as_identifier
from kernelllm_judge.render.inductor.program_text import Allocation, Statements

_STEPS = 2
"""The fewest attributes and subscripts after ``self`` that get a name: ``self.norm`` reads well as it is."""


def with_named_parts(statements: Statements, names: Names) -> Statements:
    """Names each part that is read several times, before its first use.

    Args:
        statements: of a ``forward``, without branches and loops.
        names: what is taken in it.
    """
    deepest = max((_steps(part) for each in statements for part in _parts(each)), default=0)
    # The longest first: their definitions then read the shorter ones.
    for steps in range(deepest, _STEPS - 1, -1):
        read = Counter(
            ast.unparse(part) for each in statements for part in _parts(each) if _steps(part) == steps
        )
        often = [path for path, times in read.items() if times > (1 if path.endswith("]") else 2)]
        statements = _named(statements, {path: names.take(as_identifier(path)) for path in often})
    return statements


def _named(statements: Statements, parts: Mapping[str, str]) -> Statements:
    """Returns the statements with names in place of parts, and with the names' definitions."""
    result: list[str | Allocation] = []
    defined = set()
    for statement in statements:
        found = [part for part in _parts(statement) if ast.unparse(part) in parts]
        for path in dict.fromkeys(map(ast.unparse, found)):
            if path not in defined:
                result.append(f"{parts[path]} = {path}")
                defined.add(path)
        result.append(_replaced(statement, found, parts) if isinstance(statement, str) else statement)
    return tuple(result)


def _replaced(statement: str, found: Sequence[ast.expr], parts: Mapping[str, str]) -> str:
    """Returns a statement with names in place of parts. Its line breaks stay."""
    lines = statement.encode().split(b"\n")  # as offsets count bytes
    for part in sorted(found, key=lambda p: p.col_offset, reverse=True):
        line = lines[part.lineno - 1]
        name = parts[ast.unparse(part)].encode()
        lines[part.lineno - 1] = line[: part.col_offset] + name + line[part.end_col_offset :]
    return b"\n".join(lines).decode()


def _parts(statement: str | Allocation) -> Iterator[ast.expr]:
    """Yields the expressions over ``self`` of which a statement reads an attribute or a subscript."""
    for node in ast.walk(ast.parse(statement)) if isinstance(statement, str) else ():
        if isinstance(node, ast.Attribute | ast.Subscript) and _steps(node) > _STEPS:
            yield node.value


def _steps(node: ast.AST) -> int:
    """The attributes and literal subscripts after ``self``; 0 for any other expression."""
    match node:
        case (
            ast.Attribute(value=ast.Name(id="self"))
            | ast.Subscript(value=ast.Name(id="self"), slice=ast.Constant())
        ):
            return 1
        case ast.Attribute(value=value) | ast.Subscript(value=value, slice=ast.Constant()):
            return (inner := _steps(value)) and inner + 1
    return 0
