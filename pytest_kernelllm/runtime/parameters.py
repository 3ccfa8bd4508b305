"""Parameters of a ``forward``: which have a place of their own, and how they are passed on."""

from __future__ import annotations

import inspect
import types

Parameter = inspect.Parameter
VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
"""Kinds of parameters without a place of their own: kernels are not given what comes in by them."""


def has_self(function: types.FunctionType) -> bool:
    """Whether a function takes a first argument by position."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def passed(parameter: inspect.Parameter) -> str:
    """How a function hands on what came in by one of its parameters."""
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    if parameter.kind is Parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    return (
        f"{parameter.name}={parameter.name}" if parameter.kind is Parameter.KEYWORD_ONLY else parameter.name
    )
