"""Says whether gradients of a class will be wanted, as far as its file shows it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

from kernelllm_runtime.source.marks import Mark
from kernelllm_runtime.source.resolve import Module
from kernelllm_runtime.source.syntax import chain_of

_LOSS = re.compile(r"(Loss|Criterion|(^|[a-z0-9_])B?CE)$")
"""How the names of losses end: ``FocalLoss``, ``SmoothedCE``."""


def why_trained(module: Module, mark: Mark) -> str:
    """Returns why a kernel for the class should compute gradients: ``it is a loss``; empty if nothing shows it."""
    if mark.kind == "kernelbench":
        return ""  # it has no marker that could ask for them
    bases = mark.node.bases if mark.node is not None else []
    names = [mark.expression, *filter(None, map(chain_of, bases))]
    if any(_LOSS.search(name[-1]) for name in names):
        return "it is a loss"
    if mark.node is not None and _returns_one_number(mark.node):
        return "it returns one number, as a loss does"
    return "its file trains" if _file_trains(module.tree) else ""


@functools.lru_cache(maxsize=1)  # for all the classes of one file
def _file_trains(tree: ast.Module) -> bool:
    return any(map(_trains, ast.walk(tree)))


def _returns_one_number(node: ast.ClassDef) -> bool:
    forward = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
    returned = list(_returned(forward.body)) if forward else []
    return bool(returned) and all(map(_is_one_number, returned))


def _returned(body: list[ast.stmt]) -> Iterator[ast.expr | None]:
    for statement in body:
        if isinstance(statement, ast.Return):
            yield statement.value
        elif not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            for _, inner in ast.iter_fields(statement):
                if isinstance(inner, list) and all(isinstance(each, ast.stmt) for each in inner):
                    yield from _returned(inner)


def _is_one_number(value: ast.expr | None) -> bool:
    """Whether an expression is a mean or a sum over everything, or one of torch's losses."""
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
        return False
    name, of_torch = value.func.attr, chain_of(value.func) == ("torch", value.func.attr)
    if name in ("mean", "sum"):
        return len(value.args) == of_torch and not value.keywords
    reduced = not any(each.arg == "reduction" for each in value.keywords)
    return reduced and (name.endswith("_loss") or name == "cross_entropy")


def _trains(node: ast.AST) -> bool:
    """Whether code uses an optimizer or runs a backward pass."""
    if isinstance(node, ast.ImportFrom):
        names = {f"{node.module}.{each.name}" for each in node.names}
    elif isinstance(node, ast.Import):
        names = {each.name for each in node.names}
    elif isinstance(node, ast.Attribute):
        names = {".".join(chain_of(node) or ())}
    else:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "backward"
        )
    return any(f"{name}.".startswith("torch.optim.") for name in names)
