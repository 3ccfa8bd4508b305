"""Finds out how modules of a model can be marked, with the inputs and constructor arguments of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelllm_judge.core.targets import TensorSpec
from kernelllm_judge.target.attributes import dtype_name, is_scalar
from kernelllm_judge.target.build import original_forward
from kernelllm_judge.target.cases import Described
from kernelllm_judge.target.varying import runs_without_data
from kernelllm_judge.target.work import empty_tensors
from kernelllm_runtime.leaves import all_leaves, leaves
from kernelllm_runtime.parameters import keywords
from pytest_kernelllm.beside.ranking.construction import Constructions
from pytest_kernelllm.beside.ranking.expressions import Imports, Inexpressible, expression
from pytest_kernelllm.beside.ranking.rows import Group
from pytest_kernelllm.beside.ranking.trace import Shape

Factory = Callable[[], Any]


@dataclass(frozen=True)
class Marker:
    """The marker of a group of modules."""

    group: Group = field(repr=False)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``forward`` by parameter."""
    init: Mapping[str, Any] | None = None
    """Arguments of the constructor; None if the module is taken from the factory's model."""
    factory: Factory | None = None
    left_out: str = ""
    """What the run passed and the marker does not, because no domain can hold it, and what follows from that."""
    reason: str = ""
    """Why it cannot be marked; the rest is empty then."""


def marker_for(group: Group, constructions: Constructions, factory: Factory | None) -> Marker:
    """Returns how a group can be marked, or why it cannot.

    Args:
        factory: builds the whole model, for modules whose arguments cannot be written.
    """
    cls = type(group.module)
    try:
        inputs, left_out = _inputs(group)
        Imports().name(cls)
        init = constructions.arguments(group.module)
        if init is not None:
            try:
                expression(dict(init), Imports())
                return Marker(group, inputs, init, left_out=left_out)
            except Inexpressible as error:
                why = f"its constructor takes {error}"
        else:
            why = "how it is built is not known, give rank() a factory"
        if factory is None:
            raise Inexpressible(why)
        Imports().name(factory)
    except Inexpressible as error:
        return Marker(group, reason=str(error))
    return Marker(group, inputs, None, factory, left_out)


def _inputs(group: Group) -> tuple[dict[str, Any], str]:
    """The arguments of ``forward`` by parameter, without those at their defaults; and ``Marker.left_out``.

    Left out is what no domain can hold, such as a cache of keys and values, if the module runs without it.

    Raises:
        Inexpressible: what is passed or returned can be no part of a domain.
    """
    signature = inspect.signature(original_forward(type(group.module)))
    try:
        bound = signature.bind(None, *group.arguments.args, **group.arguments.kwargs).arguments
    except TypeError:
        raise Inexpressible("its arguments do not fit the signature of forward") from None
    given: dict[str, Any] = {}
    left_out: list[str] = []
    odd: list[str] = []
    own = dict(list(bound.items())[1:])
    further = own.pop(keywords(signature), {})
    for name, value in {**own, **further}.items():
        parameter = signature.parameters[name if name in own else keywords(signature)]
        if is_scalar(value) and type(value) is type(parameter.default) and value == parameter.default:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise Inexpressible(f"its arguments go into *{name}")
        if _judged(value):
            given[name] = value
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            raise Inexpressible(f"its argument `{name}` {_kind(value)}")
        else:
            left_out.append(f"`{name}`, which {_kind(value)}")
            odd.append(f"its argument `{name}` {_kind(value)}")
    if not any(isinstance(leaf, Shape) for leaf in all_leaves(given.values())):
        raise Inexpressible("it is called without a tensor")
    if left_out and not runs_without_data(group.module, empty_tensors(specs(given))):
        raise Inexpressible(odd[0])
    if (found := _odd(group.returned)) is not None:
        raise Inexpressible(f"it returns {_a(found.__qualname__)}")
    what = " and ".join(left_out)
    return (
        given,
        what and f"its marker leaves out {what}, so kernels will not run in calls like the example's",
    )


def _judged(value: Any) -> bool:
    """Whether an argument is what a domain holds: a tensor, a plain value, or a tuple, list or dict of these."""
    leaves = all_leaves([value])
    return all(isinstance(leaf, Shape) or is_scalar(leaf) for leaf in leaves)


def _kind(value: Any) -> str:
    odd = next((x for x in all_leaves([value]) if not (isinstance(x, Shape) or is_scalar(x))), None)
    kind = odd if isinstance(odd, type) else type(odd)
    return f"{'is' if all_leaves([value]) == [value] else 'holds'} {_a(kind.__qualname__)}"


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"


def _odd(returned: Any) -> type | None:
    """The type of the first thing that is neither a tensor nor None, in what a module returns."""
    if isinstance(returned, tuple | list | dict):
        parts = returned.values() if isinstance(returned, dict) else returned
        return next((odd for each in parts if (odd := _odd(each))), None)
    if returned is None or isinstance(returned, Shape):
        return None
    return returned if isinstance(returned, type) else type(returned)


def specs(inputs: Mapping[str, Any]) -> Described:
    """The arguments by leaf."""
    every = [leaf for name, value in inputs.items() for leaf in leaves(name, value)]
    return {
        name: TensorSpec(dtype_name(x.dtype), x.sizes) if isinstance(x, Shape) else x for name, x in every
    }
