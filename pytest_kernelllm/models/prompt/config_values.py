"""Records which attributes a module reads of its configuration objects, and writes them as a namespace."""

from __future__ import annotations

import ast
import copy
import enum
import functools
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import MethodType, SimpleNamespace
from typing import Any

import torch

from pytest_kernelllm.models.prompt.errors import NotPortable
from pytest_kernelllm.models.prompt.origins import is_definition
from pytest_kernelllm.models.prompt.values import ExpressionWriter, is_plain

_NOT_ATTRIBUTES = ("__getitem__", "__iter__", "__len__", "__call__", "__contains__")
"""Operations on an object that a ``SimpleNamespace`` does not support."""

_NO_OBJECTS = (
    torch.Tensor,
    torch.nn.Module,
    MethodType,
    enum.Enum,
    functools.partial,
    tuple,
    list,
    torch.dtype,
)


@dataclass(eq=False)
class Reads:
    """The attributes that were read from one object."""

    value: Any
    attributes: dict[str, Any] = field(default_factory=dict)
    """Values by name, in the order of first access; an object that is read in turn has a ``Reads``."""
    otherwise: set[str] = field(default_factory=set)
    """The special methods that were used."""


def is_object(value: Any) -> bool:
    """Whether a value is an object such as a configuration, of which code reads attributes."""
    if is_plain(value) or is_definition(value) or isinstance(value, _NO_OBJECTS):
        return False
    return hasattr(value, "__dict__") or hasattr(type(value), "__slots__")


def watched(value: Any) -> tuple[Any, Reads]:
    """Copies an object so that the copy records what is read from it, except by its own methods.

    The copy's class derives from the object's class, so ``isinstance`` gives the same result.

    Returns:
        The copy and its record.
    """
    kind: Any = type(value)
    reads, parts = Reads(value), dict[str, Any]()

    def recorded(self: Any, name: str) -> Any:
        found = kind.__getattribute__(self, name)
        if name.startswith("__") or sys._getframe(1).f_locals.get("self") is self:
            return found
        if name not in parts:
            # A copy, because the constructor may go on to change a list or dict that it read.
            held = copy.deepcopy(found) if is_plain(found) else found
            parts[name], reads.attributes[name] = watched(found) if is_object(found) else (found, held)
        return parts[name] if isinstance(reads.attributes[name], Reads) else found

    body: dict[str, Any] = {"__getattribute__": recorded, "__module__": kind.__module__, "__slots__": ()}
    body["__deepcopy__"] = lambda self, memo: self  # a copy does not count as reading
    for name in _NOT_ATTRIBUTES:
        if hasattr(kind, name):
            body[name] = _recording(kind, name, reads)
    # _NoSubclassHook comes first, so that the class's own __init_subclass__ does not run.
    recording = type("Watched", (_NoSubclassHook, kind), body)
    return _with_class(value, recording), reads


def namespace(
    reads: Reads, mentioned: Callable[[str], bool], more: Iterable[str], writer: ExpressionWriter
) -> ast.expr:
    """Writes ``SimpleNamespace(...)`` with the attributes that were read.

    Args:
        reads: what was read of the object.
        mentioned: whether the copied code still mentions a name.
        more: names that code reads on branches that were not taken; those with plain values are added.
        writer: writes the values.

    Raises:
        NotPortable: a value cannot be written, or a namespace does not support how the object was used.
    """
    kind = type(reads.value).__name__
    if reads.otherwise:
        if isinstance(reads.value, dict) and not reads.attributes:
            return writer.write(dict(reads.value))
        raise NotPortable(f"it indexes, iterates or calls its {kind}, of which only attributes can be copied")
    held = {name: value for name, value in reads.attributes.items() if mentioned(name)}
    for name in more:
        if name not in held and is_plain(found := _attribute(reads.value, name)):
            held[name] = found
    expression = writer.call(SimpleNamespace, (), {})
    for name, value in held.items():
        try:
            made = (
                namespace(value, mentioned, (), writer) if isinstance(value, Reads) else writer.write(value)
            )
        except NotPortable as refusal:
            raise NotPortable(f"it reads {name} of its {kind}, and that is {refusal}") from None
        expression.keywords.append(ast.keyword(name, made))
    return expression


def _attribute(value: Any, name: str) -> Any:
    """Returns an attribute, or a new ``object`` if it cannot be read."""
    try:
        return getattr(value, name)
    except Exception:  # a property of the user's may raise anything
        return object()


class _NoSubclassHook:
    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


def _recording(kind: type, name: str, reads: Reads) -> Callable[..., Any]:
    def special(self: Any, *args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_locals.get("self") is not self:
            reads.otherwise.add(name)
        return getattr(kind, name)(self, *args, **kwargs)

    return special


def _with_class(value: Any, kind: Any) -> Any:
    made = copy.copy(value)
    try:
        object.__setattr__(made, "__class__", kind)
    except TypeError:  # a built-in type's layout
        made = kind.__new__(kind)
        if isinstance(value, dict):
            dict.update(made, value)
        made.__dict__.update(vars(value))
    return made
