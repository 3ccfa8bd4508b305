"""Generates the function that replaces ``forward``, with the parameters of the original."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from kernelllm_runtime import compiled
from kernelllm_runtime.adopted import DISPATCHER, ORIGINAL
from kernelllm_runtime.generated import define
from kernelllm_runtime.parameters import passed

if TYPE_CHECKING:
    from kernelllm_runtime.dispatch import Dispatcher

Parameter = inspect.Parameter

# Calls of the same form as the last one are decided here; packing their arguments would cost as much as deciding.
# The names are long because they share a namespace with the user's parameters.
_FORWARD = """
def forward{signature}:{before}
    kernelllm_form = kernelllm_dispatcher.known.get(kernelllm_id({self}), kernelllm_nobody).last
    if not kernelllm_form.fits({fixed}):
        kernelllm_form = kernelllm_dispatcher.form({fixed})
    if kernelllm_form.kernel is not None:
        try:
            return kernelllm_form.kernel({fixed})
        except kernelllm_Exception as kernelllm_error:
            kernelllm_dispatcher.failed(kernelllm_error)
    return kernelllm_original({given})
"""

_VARIADIC = """
    if {extra}:  # no domain includes variadic arguments
        return kernelllm_original({given})"""

_COMPILING = """
    if kernelllm_is_compiling():
        return kernelllm_original({given})"""

_COMPILING_KERNEL = """
    if kernelllm_is_compiling():
        kernelllm_values = kernelllm_traced.values({fixed})
        if kernelllm_values is None:
            return kernelllm_original({given})
        try:
            return kernelllm_dispatcher.scope.run({self}, *kernelllm_values)
        except kernelllm_NotImplementedError as kernelllm_error:
            kernelllm_dispatcher.failed(kernelllm_error)
            return kernelllm_original({given})"""

# For a decorated function: the inner signature defines the parameters, but the decorator may accept more.
_BIND = """
    try:
        ({values}) = kernelllm_bind(*kernelllm_args, **kernelllm_kwargs)
    except kernelllm_TypeError:
        return kernelllm_original({given})"""


def standing_in(original: types.FunctionType, dispatcher: Dispatcher) -> types.FunctionType:
    """Returns a function with the parameters of ``original`` that runs the kernel or ``original``."""
    parameters = list(inspect.signature(original).parameters.values())
    fixed = [_value(each) for each in parameters[1:] if each.kind is not Parameter.VAR_POSITIONAL]
    extra = [each.name for each in parameters if each.kind is Parameter.VAR_POSITIONAL]
    if hasattr(original, "__wrapped__"):
        self, signature = "kernelllm_self", "(kernelllm_self, /, *kernelllm_args, **kernelllm_kwargs)"
        given = "kernelllm_self, *kernelllm_args, **kernelllm_kwargs"
        before = _COMPILING + _BIND
    else:
        self, signature = parameters[0].name, _signature(parameters)
        given = ", ".join(map(passed, parameters))
        before = (_VARIADIC if extra else "") + (_COMPILING_KERNEL if compiled.wanted() else _COMPILING)
    parts = {
        "self": self,
        "given": given,
        "fixed": ", ".join((self, *fixed)),
        "extra": " or ".join(extra),
        "values": "".join(f"{name.partition(' ')[0]}, " for name in fixed),
    }
    text = _FORWARD.format(signature=signature, before=before.format(**parts), **parts).strip()
    made = define("forward", text, _names(original, dispatcher) | _defaults(parameters))
    # torch.jit.script compiles the original's source (it follows __wrapped__) but looks names up in the
    # globals of the function it was given.
    function = types.FunctionType(
        made.__code__, original.__globals__, original.__name__, made.__defaults__, made.__closure__
    )
    function.__kwdefaults__ = made.__kwdefaults__
    functools.update_wrapper(function, original)
    setattr(function, ORIGINAL, original)
    setattr(function, DISPATCHER, dispatcher)
    return function


def _names(original: types.FunctionType, dispatcher: Dispatcher) -> dict[str, Any]:
    """The values of the names in the texts above, including builtins: the globals will be the user's."""
    return {
        "kernelllm_dispatcher": dispatcher,
        "kernelllm_nobody": dispatcher.nobody,
        "kernelllm_original": original,
        "kernelllm_bind": _bind(list(inspect.signature(original).parameters.values())[1:]),
        # Importing it loads torch.compile's machinery.
        "kernelllm_traced": compiled.Traced(dispatcher) if compiled.wanted() else None,
        "kernelllm_is_compiling": torch.compiler.is_dynamo_compiling,
        "kernelllm_id": id,
        "kernelllm_Exception": Exception,
        "kernelllm_NotImplementedError": NotImplementedError,
        "kernelllm_TypeError": TypeError,
    }


def _bind(parameters: list[inspect.Parameter]) -> types.FunctionType:
    """A function that returns the values of these parameters; it raises TypeError for what goes into ``*args``."""
    fixed = [each for each in parameters if each.kind is not Parameter.VAR_POSITIONAL]
    values = "".join(f"{_value(each)}, " for each in fixed)
    return define("bind", f"def bind{_signature(fixed)}:\n    return ({values})", _defaults(parameters))


def _value(parameter: inspect.Parameter) -> str:
    """The value by which calls are decided; what goes into ``**kwargs`` is None where nothing does."""
    return f"{parameter.name} or None" if parameter.kind is Parameter.VAR_KEYWORD else parameter.name


def _signature(parameters: Iterable[inspect.Parameter]) -> str:
    """``(self, x, scale=kernelllm_default_scale)``: without annotations, the defaults by name."""
    bare = [
        each.replace(
            annotation=Parameter.empty,
            default=Parameter.empty if each.default is Parameter.empty else _Name(_default(each)),
        )
        for each in parameters
    ]
    return str(inspect.Signature(bare))


def _defaults(parameters: Iterable[inspect.Parameter]) -> dict[str, Any]:
    return {_default(each): each.default for each in parameters if each.default is not Parameter.empty}


def _default(parameter: inspect.Parameter) -> str:
    return f"kernelllm_default_{parameter.name}"


class _Name(str):
    """A text whose ``repr`` is the text."""

    def __repr__(self) -> str:
        return str(self)
