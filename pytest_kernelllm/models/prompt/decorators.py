"""Removes decorators that do not change what a copied class or function computes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from kernelllm_judge.core.syntax import chain_of
from pytest_kernelllm.models.prompt import origins
from pytest_kernelllm.models.prompt.classes import ClassParts, check_methods

Methods = Mapping[tuple[type, str], FunctionType]


def strip(node: ast.FunctionDef | ast.ClassDef, namespace: Mapping[str, Any], drop: bool) -> None:
    """Removes the marker and, if ``drop``, the decorators of installed libraries.

    Decorators of PyTorch, of the standard library and of the user's project stay.
    """
    node.decorator_list = [
        decorator
        for decorator in node.decorator_list
        if not origins.is_ours(found := _value(decorator, namespace))
        and not (drop and origins.is_library(found))
    ]


def strip_class(
    parts: ClassParts, namespace: Mapping[str, Any], same_without: Callable[[Methods], bool]
) -> None:
    """Removes the decorators of a class and its methods that change nothing.

    The live class shows whether a library's decorator returned its argument unchanged. A decorator that
    wrapped a method is removed if the original computes the same without it.

    Args:
        parts: the class; its nodes are changed.
        namespace: the names of its module.
        same_without: whether the outputs stay equal if other functions replace some methods.

    Raises:
        NotPortable: a method is not the one in the source.
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
