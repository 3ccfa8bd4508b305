"""Replaces decorators of a completion that make arguments contiguous or enter a device.

Such a decorator (``@input_guard``, ``@ensure_contiguous``) takes any arguments and passes them on. A kernel module
runs on its input's device, so that only ``x = x.contiguous()`` is left of it.
"""

from __future__ import annotations

import ast

from pytest_kernelllm.core.syntax import call_name, dotted, parameters

_GUARDS = frozenset(
    {
        "any",
        "all",
        "isinstance",
        "len",
        "list",
        "tuple",
        "dict",
        "zip",
        "map",
        "next",
        "iter",
        "contiguous",
        "items",
    }
    | {"values", "keys", "is_contiguous", "device", "device_of", "nullcontext", "wraps", "chain", "append"}
)
"""What a decorator may call that only guards: functions and methods by their last names."""


def without_guards(tree: ast.Module) -> ast.Module:
    """Replaces guarding decorators at top level and in classes, and drops ``functools.wraps``, in place."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    guards = {name: function for name, function in functions.items() if _guards(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            mine = [d for d in node.decorator_list if dotted(d) in guards]
            kept = [d for d in node.decorator_list if d not in mine and not _is_wraps(d)]
            node.decorator_list = kept
            if any("contiguous" in ast.dump(guards[dotted(d) or ""]) for d in mine):
                _make_contiguous(node)
    return tree


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
    for node in ast.walk(wrapper):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
            if name != own[0] and name not in _GUARDS:
                return False
        if isinstance(node, ast.BinOp | ast.Global | ast.Nonlocal | ast.Raise):
            return False
    returned = [node.value for node in ast.walk(wrapper) if isinstance(node, ast.Return)]
    return bool(returned) and all(isinstance(v, ast.Call) and dotted(v.func) == own[0] for v in returned)


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
