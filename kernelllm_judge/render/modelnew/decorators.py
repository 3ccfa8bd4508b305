"""Replaces decorators and context managers of a completion that make arguments contiguous or enter a device.

Such a decorator (``@input_guard``, ``@ensure_contiguous``) takes any arguments and passes them on. A kernel module
runs on its input's device, so that only ``x = x.contiguous()`` is left of it, and nothing of ``with device_context(x.device)``.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from kernelllm_judge.core.syntax import RemovingTransformer, call_name, dotted, parameters

_GUARDS = frozenset(
    {"getattr", "hasattr", "any", "all", "isinstance", "len", "list", "tuple", "dict", "zip", "map"}
    | {"next", "iter", "contiguous", "items", "values", "keys", "is_contiguous", "device"}
    | {"device_of", "nullcontext", "wraps", "chain", "append"}
)
"""What may be called by a decorator or context manager that only guards: functions and methods by their last names."""


def without_guards(tree: ast.Module) -> ast.Module:
    """Replaces guarding decorators and context managers, and drops ``functools.wraps``, in place."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    guards = {name: function for name, function in functions.items() if _guards(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            mine = [d for d in node.decorator_list if dotted(d) in guards]
            kept = [d for d in node.decorator_list if d not in mine and not _is_wraps(d)]
            node.decorator_list = kept
            if any("contiguous" in ast.dump(guards[dotted(d) or ""]) for d in mine):
                _make_contiguous(node)
    _WithoutContexts({name for name, function in functions.items() if _is_context(function)}).visit(tree)
    return tree


class _WithoutContexts(RemovingTransformer):
    """Writes the body of ``with device_context(x.device)`` in its place."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        """Removes what is entered by a function of these names."""
        self.generic_visit(node)
        node.items = [item for item in node.items if not self._guards(item)]
        return node if node.items else node.body

    def _guards(self, item: ast.withitem) -> bool:
        call = item.context_expr
        return isinstance(call, ast.Call) and call_name(call) in self._names and item.optional_vars is None


def _is_context(function: ast.FunctionDef) -> bool:
    """Whether a function is a context manager that only guards."""
    decorators = [dotted(decorator) for decorator in function.decorator_list]
    yields = [node for node in ast.walk(function) if isinstance(node, ast.Yield)]
    return (
        decorators in (["contextmanager"], ["contextlib.contextmanager"])
        and all(node.value is None for node in yields)
        and _calls_only(function, _GUARDS)
    )


def _is_wraps(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and call_name(node) in ("functools.wraps", "wraps")


def _guards(function: ast.FunctionDef) -> bool:
    """Whether a function is a decorator whose wrapper only guards the arguments of what it calls."""
    own = [p.arg for p in parameters(function.args)]
    wrappers = [node for node in function.body if isinstance(node, ast.FunctionDef)]
    if len(own) != 1 or len(wrappers) != 1 or not wrappers[0].args.vararg:
        return False
    [wrapper], last = wrappers, function.body[-1]
    if not (isinstance(last, ast.Return) and dotted(last.value or ast.Pass()) == wrapper.name):
        return False
    if not _calls_only(wrapper, {own[0], *_GUARDS}):
        return False
    returned = [node.value for node in ast.walk(wrapper) if isinstance(node, ast.Return)]
    return bool(returned) and all(isinstance(v, ast.Call) and dotted(v.func) == own[0] for v in returned)


def _calls_only(function: ast.FunctionDef, names: Collection[str]) -> bool:
    """Whether a function calls nothing else, computes nothing, and changes no other names; decorators aside."""
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    called = {func.attr if isinstance(func, ast.Attribute) else dotted(func) for func in calls}
    return called <= {*names} and not any(
        isinstance(node, ast.BinOp | ast.Global | ast.Nonlocal | ast.Raise) for node in nodes
    )


def _make_contiguous(function: ast.FunctionDef) -> None:
    """Makes a function's tensor arguments contiguous before anything else."""
    names = [p.arg for p in parameters(function.args) if p.arg not in ("self", "ctx")]
    lines = [
        f"{name} = {name}.contiguous() if isinstance({name}, torch.Tensor) else {name}" for name in names
    ]
    first = 0 if ast.get_docstring(function) is None else 1
    made = ast.parse("\n".join(lines)).body
    for node in made:
        ast.increment_lineno(node, function.lineno - node.lineno)
    function.body[first:first] = made
