"""Lowers a kernel from a compiler to plain ``tl`` and libdevice, without the compiler's helpers."""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernelllm_judge.core.syntax import (
    RemovingTransformer,
    call_name,
    expression,
    is_docstring,
    read_names,
    stored_names,
)
from kernelllm_judge.render.errors import RenderError

_ALIKE = ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "floor", "ceil", "abs", "fma")
SAME = {
    **{
        f"{module}.{name}": f"tl.{name}"
        for module in ("libdevice", "tl_math", "tl.math", "math")
        for name in _ALIKE
    },
    **{
        f"{module}.{name}": f"tl.{function}"
        for module in ("libdevice", "tl_math")
        for name, function in {
            **{name: name for name in ("div_rn", "sqrt_rn", "clamp", "sigmoid", "where")},
            **dict.fromkeys(("fabs",), "abs"),
            **dict.fromkeys(("fmax", "max"), "maximum"),
            **dict.fromkeys(("fmin", "min"), "minimum"),
            "fdiv_rn": "div_rn",
            "fsqrt_rn": "sqrt_rn",
        }.items()
    },
}
"""Functions that ``tl`` has under its own name."""

_DEVICE = {
    **{name: name for name in ("maximum", "minimum", "max_with_index", "min_with_index")},
    **{name: name for name in ("maximum_with_index", "minimum_with_index", "pow_integer")},
    **{name: name for name in ("select_one", "sort_with_index")},
    "max2": "nan_max",
    "min2": "nan_min",
    "any": "any_true",
    "prod": "product",
    "promote_to_tensor": "at_least_1d",
    "div_floor_integer": "floor_divide",
    "remainder_integer": "floor_remainder",
    "welford_reduce": "welford_next",
    "welford": "welford_total",
    "welford_combine": "welford_joined",
    "online_softmax_combine": "online_softmax_next",
    "online_softmax_combine_with_sum": "online_softmax_joined",
    "online_softmax_reduce": "online_softmax_total",
}
"""The functions in ``device`` that replace those of ``triton_helpers``."""

_DROPPED = (
    "tl.device_assert",
    "tl.static_assert",
    "tl.static_print",
    "tl.device_print",
    "triton_helpers.set_driver_to_gpu",
    "tl.full",
    "tl.arange",
    "tl.where",
)
"""Calls that are dropped where they are statements of their own: checks, prints, and values that nothing uses."""
_BUILTINS = {"float", "int", "bool", "range", "min", "max", "len", "abs"}


def lower(
    function: ast.FunctionDef, helpers: Iterable[ast.FunctionDef] = (), scalars: Iterable[str] = ()
) -> ast.FunctionDef:
    """Copies a kernel so that it uses only ``tl``, libdevice and the functions in ``device``, under ``@triton.jit`` alone.

    Args:
        function: the original kernel.
        helpers: other ``@triton.jit`` functions in its source, which it may call.
        scalars: other names that it may read: constants of the module, and what will become parameters.
    """
    result = copy.deepcopy(function)
    result.decorator_list = [expression("triton.jit")]
    result.returns = None
    result.body = [s for s in result.body if not is_docstring(s)]
    sums = {helper.name for helper in helpers if _adds(helper)}
    result = _Lower(function.name, sums).visit(result)
    assert isinstance(result, ast.FunctionDef)
    ast.fix_missing_locations(result)
    _check(result, {helper.name for helper in helpers} | set(scalars))
    return result


def device_functions(names: Iterable[str]) -> list[str]:
    """Returns the source of the named device functions and of those that they call, in the file's order."""
    sources = _device_sources()
    used: set[str] = set()
    todo = [name for name in names if name in sources]
    while todo:
        name = todo.pop()
        if name not in used:
            used.add(name)
            todo += read_names(ast.parse(sources[name])) & sources.keys()
    return [source for name, source in sources.items() if name in used]


def device_names() -> frozenset[str]:
    """Returns the names of all device functions."""
    return frozenset(_device_sources())


@functools.cache
def _device_sources() -> Mapping[str, str]:
    found = {}
    for name in ("elementwise.py", "reductions.py"):
        text = (Path(__file__).with_name("device") / name).read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = "\n".join(lines[node.decorator_list[0].lineno - 1 : node.end_lineno])
    return found


def _adds(helper: ast.FunctionDef) -> bool:
    """Whether a combine function is ``c = a + b; return c``, as the compiler writes it."""
    sums = {" + ".join(order) for order in itertools.permutations(a.arg for a in helper.args.args)}
    match helper.body:
        case [ast.Assign(targets=[ast.Name(total)], value=value), ast.Return(ast.Name(result))]:
            return total == result and len(helper.args.args) == 2 and ast.unparse(value) in sums
    return False


class _Lower(RemovingTransformer):
    """Replaces calls; ``sums`` are the combine functions that only add."""

    def __init__(self, kernel: str, sums: set[str]) -> None:
        self.kernel = kernel
        self.sums = sums

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if not isinstance(node.value, ast.Call):
            return None
        return None if call_name(node.value) in _DROPPED else self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target = node.targets[0]
        one = isinstance(target, ast.Tuple) and len(target.elts) == 1
        if one and isinstance(node.value, ast.Call) and call_name(node.value) == "tl.cumsum":
            assert isinstance(target, ast.Tuple)
            node.targets = [target.elts[0]]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if ast.unparse(node) in ("tl.core.constexpr", "triton.language.constexpr"):
            return expression("tl.constexpr")
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = call_name(node)
        module, _, function = name.rpartition(".")
        if name in SAME:
            node.func = expression(SAME[name])
        elif module == "triton_helpers" and function in _DEVICE:
            node.func = ast.Name(_DEVICE[function], ast.Load())
            if function == "welford_reduce":
                # Whether it is the first iteration: accumulators of 0 give the same, without a branch in the loop.
                node.args = node.args[:4]
                node.keywords = [each for each in node.keywords if each.arg != "first_iteration"]
        elif in_libdevice(name):
            node.func = expression(f"libdevice.{function}")
        elif (
            name == "tl.associative_scan"
            and isinstance(node.args[0], ast.Tuple)
            and len(node.args[0].elts) == 1
        ):
            if ast.unparse(node.args[2]) in self.sums:
                return ast.Call(expression("tl.cumsum"), [node.args[0].elts[0], node.args[1]], [])
        elif name.split(".")[0] in ("libdevice", "tl_math", "triton_helpers", "math"):
            raise RenderError(f"`{self.kernel}` calls `{name}`, which Triton does not have.")
        return node


def in_libdevice(name: str) -> bool:
    """Whether a dotted name (``tl_math.tanh``, ``tl.tanh``) is a function of libdevice, and not one of this version's ``tl``."""
    module, _, function = name.rpartition(".")
    members = _members()
    if (
        module not in ("libdevice", "tl_math", "math", "tl", "tl.math")
        or function not in members["libdevice"]
    ):
        return False
    return module not in ("tl", "tl.math") or function not in members[module]


@functools.cache
def _members() -> Mapping[str, frozenset[str]]:
    """Returns what modules of this version of Triton have."""
    import triton.language  # here, because it takes a while
    from triton.language.extra import libdevice

    modules = {"tl": triton.language, "tl.math": triton.language.math}
    names = {name: frozenset(dir(module)) for name, module in modules.items()}
    return {**names, "libdevice": frozenset(dir(libdevice))}


def _check(function: ast.FunctionDef, helpers: set[str]) -> None:
    """Checks that every name is local, ``tl``, a helper or a builtin, as others would fail when the kernel runs."""
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        module, _, name = call_name(call).rpartition(".")
        if module == "tl" and name not in _members()["tl"]:
            raise RenderError(f"`{function.name}` calls `tl.{name}`, but triton.language has no {name}.")
    local = {a.arg for a in function.args.args} | stored_names(function)
    allowed = local | helpers | {"tl", "triton", "libdevice"} | set(_device_sources()) | _BUILTINS
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id not in allowed and not hasattr(builtins, node.id):
            raise RenderError(f"`{function.name}` uses `{node.id}`, which is not defined.")
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith(("tl.extra", "tl.inline_asm")):
            raise RenderError(
                f"`{function.name}` uses `{ast.unparse(node)}`, which does not run in the interpreter."
            )
