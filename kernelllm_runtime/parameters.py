"""The parameters of a ``forward``, and how they are passed on."""

from __future__ import annotations

import inspect
import types

Parameter = inspect.Parameter


def has_self(function: types.FunctionType) -> bool:
    """Returns whether a function accepts a first argument by position."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def keywords(signature: inspect.Signature) -> str:
    """Returns the name of the parameter that takes further keywords, such as ``kwargs``; empty if there is none."""
    found = (each.name for each in signature.parameters.values() if each.kind is Parameter.VAR_KEYWORD)
    return next(found, "")


def passed(parameter: inspect.Parameter) -> str:
    """Returns the expression that passes on the argument of a parameter."""
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    if parameter.kind is Parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    return (
        f"{parameter.name}={parameter.name}" if parameter.kind is Parameter.KEYWORD_ONLY else parameter.name
    )
