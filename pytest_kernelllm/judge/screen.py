"""The screen: what can be refused by reading a kernel module, before anything of it runs."""

from __future__ import annotations

import ast
import builtins
import symtable
from dataclasses import dataclass

IMPORTS = frozenset({"torch", "triton", "triton.language", "math", "torch.nn.functional"})
"""Modules a kernel module may import."""

BUILTINS = frozenset(
    [
        "abs",
        "all",
        "any",
        "bool",
        "dict",
        "divmod",
        "enumerate",
        "filter",
        "float",
        "frozenset",
        "hasattr",
        "int",
        "isinstance",
        "iter",
        "len",
        "list",
        "map",
        "max",
        "min",
        "next",
        "pow",
        "print",
        "property",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "slice",
        "sorted",
        "staticmethod",
        "str",
        "sum",
        "super",
        "tuple",
        "zip",
        "ArithmeticError",
        "AssertionError",
        "Exception",
        "ImportError",
        "IndexError",
        "KeyError",
        "ModuleNotFoundError",
        "NotImplemented",
        "NotImplementedError",
        "RuntimeError",
        "TypeError",
        "ValueError",
        "ZeroDivisionError",
    ]
)
"""Builtins a kernel module may name; the others run code, open files or look into other objects."""

TORCH_PARTS = frozenset(
    [
        "_C",
        "_dynamo",
        "_inductor",
        "compile",
        "distributed",
        "hub",
        "jit",
        "library",
        "load",
        "manual_seed",
        "multiprocessing",
        "package",
        "save",
        "serialization",
        "set_default_device",
        "set_default_dtype",
        "utils",
    ]
)
"""Parts of torch that no kernel needs."""


@dataclass(frozen=True)
class Finding:
    """Something refused: the line and what to say about it."""

    line: int
    reason: str


def screen(source: str) -> list[Finding]:
    """Refusals of a kernel module, in order of lines; empty when it may run."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [Finding(getattr(error, "lineno", 0) or 0, f"it is not Python: {error}")]
    found = [finding for node in ast.walk(tree) for finding in _node(node)]
    refused = _refused_builtins(symtable.symtable(source, "<kernel module>", "exec"))
    uses = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in refused)
    found += [Finding(node.lineno, f"uses `{node.id}`") for node in uses]
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if "forward" not in names:
        found.append(Finding(1, "it defines no function `forward`"))
    return sorted(found, key=lambda f: f.line)


def _node(node: ast.AST) -> list[Finding]:
    line = getattr(node, "lineno", 0)
    if isinstance(node, ast.Import):
        return [Finding(line, f"imports {a.name}") for a in node.names if a.name not in IMPORTS]
    if isinstance(node, ast.ImportFrom):
        if node.module in IMPORTS or (node.module == "torch" and all(a.name == "nn" for a in node.names)):
            return []
        return [Finding(line, f"imports from {'.' * node.level}{node.module or ''}")]
    if isinstance(node, ast.Attribute):
        if node.attr.startswith("__"):
            return [Finding(line, f"touches `{node.attr}`")]
        if isinstance(node.value, ast.Name) and node.value.id == "torch" and node.attr in TORCH_PARTS:
            return [Finding(line, f"uses torch.{node.attr}")]
        if isinstance(node.ctx, ast.Store | ast.Del) and not _is_self(node.value):
            return [Finding(line, f"changes the attribute `{node.attr}` of another object")]
        if isinstance(node.ctx, ast.Store | ast.Del):
            return [Finding(line, f"changes `self.{node.attr}`: a kernel keeps no state")]
    if isinstance(node, ast.Global | ast.Nonlocal):
        return [Finding(line, "keeps state in a global variable")]
    return []


_REFUSED_BUILTINS = (
    frozenset(dir(builtins)) - BUILTINS - {"None", "True", "False", "Ellipsis", "__name__", "__doc__"}
)


def _refused_builtins(scope: symtable.SymbolTable) -> set[str]:
    """Refused builtins that some scope can see; a parameter that is called ``input`` is none."""
    names = set()
    for symbol in scope.get_symbols():
        if symbol.get_name() in _REFUSED_BUILTINS:
            own = scope.get_type() == "function" and (symbol.is_local() or symbol.is_free())
            names |= set() if own else {symbol.get_name()}
    return names.union(*(_refused_builtins(child) for child in scope.get_children()))


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
