"""Writes ``get_init_inputs``, which returns the constructor's arguments."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

from torch import nn

from kernelllm_judge.core.records import Case
from kernelllm_judge.target import build
from kernelllm_judge.target.attributes import attributes
from kernelllm_judge.target.calls import Call, seeded
from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.models.prompt.classes import check_closure
from pytest_kernelllm.models.prompt.config_values import Reads, namespace
from pytest_kernelllm.models.prompt.errors import NotPortable
from pytest_kernelllm.models.prompt.inputs import Function, order, without_parameters
from pytest_kernelllm.models.prompt.sources import Sources
from pytest_kernelllm.models.prompt.values import ExpressionWriter


def constructor_call(live: LiveTarget, case: Case) -> Call:
    """Returns the constructor's arguments, also if ``init`` returns a ready module.

    Raises:
        NotPortable: the arguments with which a ready module was made do not make the same module again.
    """
    where = f"{live.target.path}: {live.target.name}"
    made = build.init_arguments(live.options.init, where)
    return made if isinstance(made, Call) else _observed_call(live, where)


def _observed_call(live: LiveTarget, where: str) -> Call:
    """Returns the arguments with which ``init`` called the class."""
    calls: list[tuple[Any, Call]] = []
    original = live.cls.__init__

    @functools.wraps(original)
    def recording(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        calls.append((self, copy.deepcopy(Call(args, kwargs))))
        original(self, *args, **kwargs)

    own = "__init__" in vars(live.cls)
    live.cls.__init__ = recording  # type: ignore[method-assign]  # for one call of init=
    try:
        with seeded(0, "cpu"):
            module = live.options.init()
    finally:
        if own:
            live.cls.__init__ = original  # type: ignore[method-assign]  # as it was
        else:
            del live.cls.__init__
    call = next((call for made, call in calls if made is module), None)
    advice = "return the constructor's arguments from init= instead"
    if call is None:
        raise NotPortable(
            f"its init callable returns a module that it did not make during the call; {advice}"
        )
    again = build.construct(live.cls, lambda: (call.args, call.kwargs), where)
    if attributes(again, None) != attributes(module, None):
        raise NotPortable(f"its init callable changes the module after making it; {advice}")
    return call


def positional_values(live: LiveTarget, call: Call) -> dict[str, Any]:
    """Returns the constructor's arguments by name, in the order in which they will be passed.

    Raises:
        NotPortable: one goes into ``**kwargs``, or into ``*args`` beside others that are passed by name.
    """
    signature = inspect.signature(live.cls.__init__)
    signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    passed = signature.bind(*call.args, **call.kwargs).arguments
    more = next((p.name for p in signature.parameters.values() if p.kind == p.VAR_POSITIONAL), "")
    rest = {f"{more}[{number}]": value for number, value in enumerate(passed.pop(more, ()))}
    names = order(signature, passed, "its constructor")
    if rest and any(signature.parameters[name].kind == inspect.Parameter.KEYWORD_ONLY for name in names):
        raise NotPortable(
            f"its constructor takes values by *{more} and others by name; give each a parameter of its own"
        )
    return {name: passed.get(name, signature.parameters[name].default) for name in names} | rest


def get_init_inputs(
    live: LiveTarget,
    values: Mapping[str, Any],
    reads: Mapping[int, Reads],
    mentioned: Callable[[str], bool],
    elsewhere: Callable[[str], Iterable[str]],
    sources: Sources,
) -> Function:
    """Writes the function ``get_init_inputs``.

    Args:
        live: the target.
        values: the values of the constructor's parameters, in order.
        reads: what was read of values that are objects, by ``id``.
        mentioned: whether the module's code mentions an attribute's name.
        elsewhere: returns the attributes of a parameter that code reads on any branch.
        sources: finds the source of ``init``.

    Raises:
        NotPortable: a value can neither be written nor copied from the source.
    """
    writer = ExpressionWriter()
    items: list[ast.expr] = []
    for name, value in values.items():
        recorded = reads.get(id(value))
        try:
            items.append(
                namespace(recorded, mentioned, elsewhere(name), writer) if recorded else writer.write(value)
            )
        except NotPortable as refusal:
            copied = None if recorded else _copied_body(live.options.init, sources)
            if copied is not None:
                return copied
            raise NotPortable(
                f"its constructor's `{name}` cannot be written ({refusal}); give it numbers, strings, containers, or "
                "objects of which only such attributes are read"
            ) from None
    return Function(
        without_parameters("get_init_inputs", [ast.Return(ast.List(items, ast.Load()))]), {}, writer.names
    )


def _copied_body(init: Any, sources: Sources) -> Function | None:
    """Copies the body of an ``init`` callable that takes nothing and ends with a tuple or list."""
    if not isinstance(init, FunctionType):
        return None
    try:
        check_closure(init)
        node = copy.deepcopy(sources.function(init))
    except NotPortable:
        return None
    body = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
    result = body[-1].value if isinstance(body[-1], ast.Return) else None
    if not isinstance(result, ast.Tuple | ast.List) or (node.args.args or node.args.kwonlyargs):
        return None
    returned = ast.Return(ast.List(result.elts, ast.Load()))
    return Function(without_parameters("get_init_inputs", [*body[:-1], returned]), init.__globals__, {})
