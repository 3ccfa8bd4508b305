"""Which decorators go with a class or function, and which are left behind because they change nothing here."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from pytest_kernelllm.core.syntax import chain_of
from pytest_kernelllm.models.prompt import origins
from pytest_kernelllm.models.prompt.classes import Parts, check_methods

Methods = Mapping[tuple[type, str], FunctionType]


def strip(node: ast.FunctionDef | ast.ClassDef, namespace: Mapping[str, Any], drop: bool) -> None:
    """Remove the marker, and if ``drop`` says so the decorators of installed libraries.

    Those of PyTorch, of the standard library and of the user's project stay.
    """
    node.decorator_list = [
        decorator
        for decorator in node.decorator_list
        if not origins.is_ours(found := _value(decorator, namespace))
        and not (drop and origins.is_library(found))
    ]


def strip_class(parts: Parts, namespace: Mapping[str, Any], same_without: Callable[[Methods], bool]) -> None:
    """Remove what can be removed from a class and its methods.

    A library's decorator that returned what it was given is known by the live class. One that wrapped a method
    is removed where the original computes the same without it.

    Args:
        parts: the class; its nodes are changed.
        namespace: of its module.
        same_without: tells whether outputs stay equal with other functions in place of some methods.

    Raises:
        Refused: a method is not the one in the source.
    """
    strip(parts.header, namespace, drop=False)
    wrapped = check_methods(parts)
    methods = [member.node for member in parts.members if isinstance(member.node, ast.FunctionDef)]
    around = _has_library(parts.header, namespace)
    suspects = {
        (parts.cls, node.name): wrapped[node.name]
        for node in methods
        if node.name in wrapped and (around or _has_library(node, namespace))
    }
    known = {place: function for place, function in suspects.items() if function is not None}
    drop = len(known) == len(suspects) and (not known or same_without(known))
    strip(parts.header, namespace, drop)
    for node in methods:
        strip(node, namespace, drop)


def _has_library(node: ast.FunctionDef | ast.ClassDef, namespace: Mapping[str, Any]) -> bool:
    return any(origins.is_library(_value(decorator, namespace)) for decorator in node.decorator_list)


def _value(decorator: ast.expr, namespace: Mapping[str, Any]) -> Any:
    chain = chain_of(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return origins.MISSING if chain is None else origins.follow(namespace, chain)
