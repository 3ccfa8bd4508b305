"""Splits a class into its members, so that members that nothing uses can be left out."""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from torch import nn

from kernelllm_judge.core.syntax import assigned_names, chain_of, first_line, is_docstring
from kernelllm_judge.target import build
from pytest_kernelllm.models.prompt.errors import NotPortable

_TEXT = ("__repr__", "__str__", "__dir__", "extra_repr", "_get_name")
_COPYING = (
    "__getstate__",
    "__setstate__",
    "__reduce__",
    "__reduce_ex__",
    "get_extra_state",
    "set_extra_state",
)
_SAVING = ("state_dict", "load_state_dict", "_load_from_state_dict", "_save_to_state_dict", "_version")
_SCRIPTING = ("__constants__", "__slots__", "dump_patches", "T_destination")
_SILENT = frozenset((*_TEXT, *_COPYING, *_SAVING, *_SCRIPTING))
"""Members of a ``torch.nn.Module`` that do not affect what it computes."""


@dataclass(eq=False)
class Member:
    """One statement of a class body."""

    node: ast.stmt | None
    """None if nothing of the statement is left."""
    names: frozenset[str]
    implicit: bool
    """Whether the member is needed even if no code names it."""
    included: bool = False


@dataclass(eq=False)
class ClassParts:
    """A class statement without its body, and the members of that body in order."""

    cls: type
    header: ast.ClassDef
    members: list[Member] = field(default_factory=list)


def split_class(cls: type, node: ast.ClassDef, inlined: Iterable[type]) -> ClassParts:
    """Copies a class statement and splits it into members.

    Args:
        cls: the live class.
        node: its statement.
        inlined: the bases that are copied as well; members that the other bases may call are needed.
    """
    header = copy.deepcopy(node)
    parts = ClassParts(cls, header)
    outside = [base for base in cls.__mro__[1:] if base not in set(inlined)]
    for statement in header.body:
        if is_docstring(statement):
            continue
        if isinstance(statement, ast.FunctionDef) and any(_is_overload(d) for d in statement.decorator_list):
            continue
        names = frozenset(assigned_names(statement))
        parts.members.append(Member(statement, names, _implicit(cls, statement, names, outside)))
    header.body = []
    return parts


def _implicit(cls: type, statement: ast.stmt, names: frozenset[str], outside: list[type]) -> bool:
    if not issubclass(cls, nn.Module):
        return not (isinstance(statement, ast.FunctionDef) and not _called_by_others(names, outside))
    if isinstance(statement, ast.AnnAssign) and statement.value is None:
        return False
    return not names or _called_by_others(names - _SILENT, outside)


def _called_by_others(names: Iterable[str], outside: list[type]) -> bool:
    return any(
        name not in ("__repr__", "__str__")
        and ((name.startswith("__") and name.endswith("__")) or any(name in vars(base) for base in outside))
        for name in names
    )


def _is_overload(decorator: ast.expr) -> bool:
    chain = chain_of(decorator)
    return chain is not None and chain[-1] == "overload"


def live_function(cls: type, name: str) -> Any:
    """Returns the function behind a method's name, without ``staticmethod`` or the like; None if it is no function."""
    if name == "forward" and name in vars(cls) and issubclass(cls, nn.Module):
        return build.original_forward(cls)
    value = vars(cls).get(name)
    value = getattr(value, "__func__", value)
    return value if callable(value) and isinstance(inspect.unwrap(value), FunctionType) else None


def check_methods(parts: ClassParts) -> dict[str, FunctionType | None]:
    """Compares the methods in a class statement with the live ones.

    Returns:
        The original function of each wrapped method, by name; None if its wrapper has no ``__wrapped__``.

    Raises:
        NotPortable: a method has a closure, or ``forward`` or ``__init__`` is not the one in the source.
    """
    wrapped: dict[str, FunctionType | None] = {}
    for node in (member.node for member in parts.members if isinstance(member.node, ast.FunctionDef)):
        function = live_function(parts.cls, node.name)
        if function is None:
            continue
        plain = inspect.unwrap(function)
        if plain.__code__.co_firstlineno == first_line(node) and plain.__code__.co_name == node.name:
            check_closure(plain)
            if plain is not function:
                wrapped[node.name] = plain
        elif node.decorator_list or parts.header.decorator_list:
            wrapped[node.name] = None
        elif node.name in ("forward", "__init__"):
            raise NotPortable(
                f"{parts.cls.__qualname__}.{node.name} was replaced after the class was written; mark a class that "
                "has its own"
            )
    return wrapped


def check_closure(function: FunctionType) -> None:
    """Checks that a function does not use variables of a function around it.

    Raises:
        NotPortable: it uses one; the message names the first.
    """
    for name in function.__code__.co_freevars:
        if name != "__class__":
            raise NotPortable(
                f"{function.__qualname__} uses `{name}` of the function around it; move it to module level "
                "and pass the value"
            )
