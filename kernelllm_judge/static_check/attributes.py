"""Checks the classes that a kernel module defines, and the attributes that it reads and changes."""

from __future__ import annotations

import ast
import re
import string
import types
from collections.abc import Iterator
from functools import cache

from kernelllm_judge.static_check.allowed import (
    BASES,
    ENUMERATIONS,
    INSIDE_MODULES,
    INSIDE_TORCH,
    INSIDE_TRITON,
    MEMBERS,
    NAMESPACES,
    OTHER_MEMBERS,
    WITH_CONTEXT,
)
from kernelllm_judge.static_check.scopes import OWN_CLASS, SELF, UNKNOWN, LexicalScope, paths


def class_definition(node: ast.ClassDef, scope: LexicalScope) -> Iterator[str]:
    """Yields what is wrong with a class."""
    if node.keywords:
        yield "gives a class arguments of a metaclass"
    for base in node.bases:
        builtin = isinstance(base, ast.Name) and base.id in BASES and not scope.holders(base.id)
        if not builtin and not paths(base, scope) <= BASES | {OWN_CLASS}:
            yield f"derives a class from {ast.unparse(base)}"
    enumeration = any(paths(base, scope) & ENUMERATIONS for base in node.bases)
    if enumeration and (len(node.bases) > 1 or not _is_plain_enumeration(node.body)):
        yield f"may keep state between calls in `{node.name}`: an enumeration has constants and methods only"


def _is_plain_enumeration(body: list[ast.stmt]) -> bool:
    """Whether a class's body gives an enumeration members, so that nothing derives from it, and adds no state to them.

    Names with an underscore are Python's own hooks: ``__init__`` runs for every member when the class is made.
    """
    members = 0
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                members += isinstance(value, ast.Constant)
            case ast.FunctionDef(name=name):
                pass
            case ast.Expr(value=ast.Constant()):
                continue
            case _:
                return False
        if name.startswith("_"):
            return False
    return members > 0


def derives_from_function(scope: LexicalScope | None) -> bool:
    """Whether a scope is that of a class which derives from ``torch.autograd.Function`` alone."""
    if scope is None or not isinstance(scope.node, ast.ClassDef) or scope.parent is None:
        return False
    bases = [paths(base, scope.parent) for base in scope.node.bases]
    return bases == [frozenset(["torch.autograd.Function"])]


_INSIDE_PYTHON = (
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.FrameType,
    types.TracebackType,
    types.CodeType,
    types.FunctionType,
    types.MethodType,
    property,
)


def attribute(node: ast.Attribute, scope: LexicalScope) -> Iterator[str]:
    """Yields what is wrong with reading or changing an attribute."""
    name = node.attr
    if not isinstance(node.ctx, ast.Load):
        yield from _changed_attribute(node, scope)
    elif name in ("format", "format_map"):
        if not (name == "format" and _is_plain_template(node.value)):
            yield f"uses `.{name}`, which can read any attribute; use an f-string"
    elif name == "__init__" and _is_super(node.value):
        return
    else:
        for path in sorted(paths(node.value, scope)):
            reason = _member(path, name)
            if reason:
                yield reason
                return


def _member(path: str, name: str) -> str | None:
    """Returns what is wrong with the attribute ``path.name``, or None."""
    if path in NAMESPACES:
        fine = name in NAMESPACES[path] or f"{path}.{name}" in NAMESPACES
        return None if fine else f"uses {path}.{name}, which no kernel needs"
    if is_dunder(name):
        return None if name == "__name__" else f"touches `{name}`"
    if path == SELF:
        return f"touches `{name}`" if name in _inside_python() or name in INSIDE_MODULES else None
    if path.startswith(f"{SELF}."):
        return f"touches `{name}`" if is_guarded(name, below_target=True) else None
    if path in (UNKNOWN, OWN_CLASS):
        return f"touches `{name}`" if is_guarded(name) else None
    holder, member = path, ""
    while holder and holder not in NAMESPACES:
        holder, _, member = holder.rpartition(".")
    if not holder or member not in NAMESPACES[holder]:
        return None
    return None if name in MEMBERS or name in OTHER_MEMBERS else f"touches `{name}` of {path}"


def _changed_attribute(node: ast.Attribute, scope: LexicalScope) -> Iterator[str]:
    """Yields what is wrong with ``x.name = …``.

    Only an autograd function's ``ctx`` and a constructor's ``self`` may be assigned to, in the module's own classes.
    """
    base = node.value
    if isinstance(base, ast.Name) and not is_dunder(node.attr):
        for holder in scope.holders(base.id):
            function = holder.node
            own = holder.parent is not None and holder.parent.kind == "class"
            if own and isinstance(function, ast.FunctionDef) and function.args.args[:1]:
                first = function.args.args[0].arg == base.id and len(holder.bindings[base.id]) == 1
                gradients = function.name in WITH_CONTEXT and derives_from_function(holder.parent)
                if first and (function.name == "__init__" or gradients):
                    return
    if isinstance(base, ast.Name) and base.id == SELF:
        yield f"changes `self.{node.attr}`: a kernel keeps no state"
    else:
        yield f"changes the attribute `{node.attr}` of another object"


def is_dunder(name: str) -> bool:
    """Whether a name begins with two underscores."""
    return name.startswith("__")


def is_guarded(name: str, below_target: bool = False) -> bool:
    """Whether an attribute is refused on an object of unknown type, or on a part of the target.

    A part is a layer, a tensor or a plain value, and its name anything: those of Triton's functions, such as ``fn``, too.
    """
    if name in MEMBERS or name in OTHER_MEMBERS:
        return False
    if name in _guarded() or is_dunder(name):
        return True
    return not below_target and (name in INSIDE_TRITON or name.startswith("_"))


@cache
def _inside_python() -> frozenset[str]:
    """Returns attributes by which Python's own objects lead to code, globals, callers and modules."""
    return frozenset({"obj", *(name for cls in _INSIDE_PYTHON for name in dir(cls) if not is_dunder(name))})


@cache
def _guarded() -> frozenset[str]:
    """Returns all attributes of tensors, layers and Python's internals.

    Those that are not among the allowed members are refused on any object. A name that is not in here is
    an attribute of the target.
    """
    return _inside_python() | INSIDE_MODULES | INSIDE_TORCH | _inside_installed_torch()


def _inside_installed_torch() -> set[str]:
    """Returns the attributes of tensors and layers in the installed torch; none without torch, as in the job that suggests."""
    try:
        from torch import Tensor, nn
    except ImportError:
        return set()
    return {name for cls in (Tensor, nn.Linear, nn.Conv2d, nn.Parameter) for name in dir(cls)}


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _is_plain_template(node: ast.expr) -> bool:
    """Whether a string literal's fields name whole arguments and not attributes of them."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    try:
        fields = list(string.Formatter().parse(node.value))
    except ValueError:
        return False
    return all(re.fullmatch(r"\w*", name or "") and "{" not in (spec or "") for _, name, spec, _ in fields)
