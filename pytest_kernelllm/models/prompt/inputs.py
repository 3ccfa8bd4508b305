"""Writes ``get_inputs``: the user's callable with its sizes filled in, or tensors of the same shapes and dtypes."""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.records import Case
from kernelllm_judge.core.syntax import Substitute, bound_names, expression
from kernelllm_judge.target.attributes import dtype_name
from kernelllm_judge.target.calls import Call, as_call, seeded
from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.models.prompt.classes import check_closure
from pytest_kernelllm.models.prompt.errors import NotPortable
from pytest_kernelllm.models.prompt.observe import small_sizes
from pytest_kernelllm.models.prompt.sources import Sources
from pytest_kernelllm.models.prompt.synthetic_inputs import synthetic
from pytest_kernelllm.models.prompt.values import ExpressionWriter, is_plain


@dataclass(frozen=True)
class Function:
    """A function for the new module, and the namespaces of the names in it."""

    node: ast.FunctionDef
    module: Mapping[str, Any]
    overlay: dict[str, Any]


def order(signature: inspect.Signature, passed: Mapping[str, Any], what: str) -> list[str]:
    """Lists the parameters that must be passed by position so that all in ``passed`` get their value.

    Passed keyword-only parameters come before those with defaults, as ``trim.positional`` moves them.

    Raises:
        NotPortable: a value goes into ``*args`` or ``**kwargs``.
    """
    found: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if name in passed:
                raise NotPortable(f"{what} takes values by {parameter}; give each a parameter of its own")
        elif parameter.kind != parameter.KEYWORD_ONLY or name in passed:
            found.append(parameter)
    if any(parameter.kind == parameter.KEYWORD_ONLY for parameter in found):
        found.sort(key=lambda parameter: parameter.default is not parameter.empty)
    names = [parameter.name for parameter in found]
    while names and names[-1] not in passed:
        names.pop()
    return names


def get_inputs(live: LiveTarget, case: Case, sources: Sources) -> Function:
    """Writes the function ``get_inputs`` for a case.

    Raises:
        NotPortable: an input can neither be copied nor be written.
    """
    make = live.options.inputs[case.name.removesuffix(f"-{case.dtype}") if case.dtype else case.name]
    made = _made(make, case)
    call = as_call(made)
    assert call is not None  # load_target called it
    names = order(live.signature, nested(live.bind(call)), "forward")
    writer = ExpressionWriter()
    try:
        body, result, module = _source(make, case, sources, writer)
        returned = _Arrangement(live, case, call, names, writer).returned(made, result)
    except NotPortable:
        sample = nested(live.bind(live.inputs(case, 0, small_sizes(case))))
        items = [_synthetic(case, name, sample.get(name, _default(live, name)), writer) for name in names]
        return Function(
            without_parameters("get_inputs", [ast.Return(ast.List(items, ast.Load()))]), {}, writer.names
        )
    return Function(without_parameters("get_inputs", [*body, *returned]), module, writer.names)


def _made(make: Any, case: Case) -> Any:
    """Calls the inputs callable on the meta device if that works, else at small sizes."""
    try:
        with seeded(0, "meta"):
            return make(**case.sizes)
    except Exception:  # of any kind, because not every callable works without data
        with seeded(0, "cpu"):
            return make(**{**case.sizes, **(small_sizes(case) or {})})


def _source(
    make: Any, case: Case, sources: Sources, writer: ExpressionWriter
) -> tuple[list[ast.stmt], ast.expr, Mapping[str, Any]]:
    """Returns the callable's statements, the expression that it returns, and the names of its module.

    Raises:
        NotPortable: it has no source, or its source needs variables of a function around it.
    """
    if not isinstance(make, FunctionType):
        raise NotPortable("not a plain function")
    check_closure(make)
    node = copy.deepcopy(sources.function(make))
    values = _arguments(make, case)
    if isinstance(node, ast.Lambda):
        return *_bound([], values, node.body, writer), make.__globals__
    last = node.body[-1]
    returns = [part for part in ast.walk(node) if isinstance(part, ast.Return | ast.Yield | ast.YieldFrom)]
    if returns == [last] and isinstance(last, ast.Return) and last.value and not node.decorator_list:
        return *_bound(node.body[:-1], values, last.value, writer), make.__globals__
    called = ast.Call(
        writer.refer(make), [], [ast.keyword(n, writer.write(v)) for n, v in case.sizes.items()]
    )
    return [], called, make.__globals__


def _arguments(make: FunctionType, case: Case) -> dict[str, Any]:
    """Returns the value of every parameter."""
    values = dict(case.sizes)
    for name, parameter in inspect.signature(make).parameters.items():
        if name not in values and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            values[name] = parameter.default
    return values


def _bound(
    body: list[ast.stmt], values: Mapping[str, Any], result: ast.expr, writer: ExpressionWriter
) -> tuple[list[ast.stmt], ast.expr]:
    """Replaces parameters in code by their values; parameters that the code binds again are assigned first."""
    holder = ast.Module([*body, ast.Expr(result)], [])
    taken = bound_names(holder)
    first: list[ast.stmt] = [
        ast.Assign([ast.Name(name, ast.Store())], writer.write(value))
        for name, value in values.items()
        if name in taken or not is_plain(value)
    ]
    constants = {n: writer.write(v) for n, v in values.items() if n not in taken and is_plain(v)}
    Substitute(constants).visit(holder)
    last = holder.body[-1]
    assert isinstance(last, ast.Expr)
    return first + holder.body[:-1], last.value


@dataclass(frozen=True)
class _Arrangement:
    """Turns what the callable returns into a list of positional arguments."""

    live: LiveTarget
    case: Case
    call: Call
    names: list[str]
    writer: ExpressionWriter

    def returned(self, made: Any, result: ast.expr) -> list[ast.stmt]:
        """Writes the last statements of ``get_inputs`` from the value and the expression that was returned."""
        if isinstance(made, torch.Tensor):
            return self._list([result])
        if self.call.kwargs or not isinstance(made, tuple | list):
            return self._by_name(made, result)
        if isinstance(result, ast.Tuple | ast.List):
            if any(isinstance(item, ast.Starred) for item in result.elts):
                return [ast.Return(self._all_cast(ast.List(result.elts, ast.Load())))]
            return self._list(result.elts)
        return [ast.Return(self._all_cast(result))]

    def _list(self, items: list[ast.expr]) -> list[ast.stmt]:
        cast = [self._cast(item, value) for item, value in zip(items, self.call.args, strict=True)]
        return [ast.Return(ast.List(cast, ast.Load()))]

    def _by_name(self, made: Any, result: ast.expr) -> list[ast.stmt]:
        """Handles a dict of keyword arguments, or ``(tuple, dict)``."""
        pair = isinstance(made, tuple | list)
        places: dict[str, ast.expr] = {}
        before: list[ast.stmt] = []
        by_position = list(self.live.signature.parameters)[: len(self.call.args)]
        parts = result.elts if pair and isinstance(result, ast.Tuple) and len(result.elts) == 2 else None
        args, kwargs = parts if parts else (None, None if pair else result)
        if pair and parts is None:
            before.append(_assign("args, kwargs", result))
        shown_args = isinstance(args, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in args.elts)
        if parts and not shown_args and args is not None:
            before.append(_assign("args", args))
        for number, name in enumerate(by_position):
            places[name] = (
                args.elts[number] if shown_args and isinstance(args, ast.Tuple) else _item("args", number)
            )
        given = _display(kwargs)
        if given is not None and list(given) != [name for name in self.names if name in given]:
            given = None  # the dict has another order, in which random numbers must be drawn
        if given is None and not (pair and parts is None) and kwargs is not None:
            before.append(_assign("kwargs", kwargs))
        for name in self.call.kwargs:
            places[name] = given[name] if given is not None else _item("kwargs", name)
        bound = nested(self.live.bind(self.call))
        items = [
            self._cast(places[name], bound[name])
            if name in places
            else self.writer.write(_default(self.live, name))
            for name in self.names
        ]
        return [*before, ast.Return(ast.List(items, ast.Load()))]

    def _cast(self, item: ast.expr, value: Any) -> ast.expr:
        """Casts one argument to the case's dtype."""
        if not self._needs_cast(value):
            return item
        if isinstance(value, tuple):
            if any(isinstance(part, tuple) for part in value):
                raise NotPortable("tuples in tuples")
            return _call("tuple", self._each_cast(item, all(map(self._needs_cast, value))))
        return ast.Call(ast.Attribute(item, "to", ast.Load()), [self._dtype()], [])

    def _all_cast(self, items: ast.expr) -> ast.expr:
        """Turns an iterable of arguments into a list in the case's dtype."""
        if not any(map(self._needs_cast, self.call.args)):
            return items if isinstance(items, ast.List) else _call("list", items)
        if any(isinstance(value, tuple) for value in self.call.args):
            raise NotPortable("tuples among arguments that are not written one by one")
        return self._each_cast(items, all(map(self._needs_cast, self.call.args)))

    def _each_cast(self, items: ast.expr, every: bool) -> ast.expr:
        """Casts what is in an iterable; ``every`` says whether all of it are floating tensors."""
        cast = (
            "x.to(DTYPE)"
            if every
            else "x.to(DTYPE) if isinstance(x, TENSOR) and x.is_floating_point() else x"
        )
        template = expression(f"[{cast} for x in ITEMS]")
        tensor = ast.Attribute(self.writer.refer(torch), "Tensor", ast.Load())
        return Substitute({"DTYPE": self._dtype(), "TENSOR": tensor, "ITEMS": items}).apply(template)

    def _needs_cast(self, value: Any) -> bool:
        if isinstance(value, tuple):
            return any(map(self._needs_cast, value))
        if self.case.dtype is None or not isinstance(value, torch.Tensor):
            return False
        return value.is_floating_point() and dtype_name(value.dtype) != self.case.dtype

    def _dtype(self) -> ast.expr:
        return ast.Attribute(self.writer.refer(torch), str(self.case.dtype), ast.Load())


def _display(node: ast.expr | None) -> dict[str, ast.expr] | None:
    """Returns the items of ``{"x": a}`` or ``dict(x=a)`` by key; None for anything else."""
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        return {
            str(key.value): v
            for key, v in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
    is_dict = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict"
    if is_dict and isinstance(node, ast.Call) and not node.args and all(k.arg for k in node.keywords):
        return {str(keyword.arg): keyword.value for keyword in node.keywords}
    return None


def _default(live: LiveTarget, name: str) -> Any:
    return live.signature.parameters[name].default


def _synthetic(case: Case, name: str, value: Any, writer: ExpressionWriter) -> ast.expr:
    if isinstance(value, tuple):
        parts = (_synthetic(case, f"{name}[{i}]", part, writer) for i, part in enumerate(value))
        return ast.Tuple(list(parts), ast.Load())
    return synthetic(value, _shape(case, name), writer)


def _shape(case: Case, name: str) -> tuple[int, ...] | None:
    shape = getattr(case.domain.inputs.get(name), "shape", None)
    return None if shape is None else tuple(case.sizes[d] if isinstance(d, str) else d for d in shape)


def without_parameters(name: str, body: list[ast.stmt]) -> ast.FunctionDef:
    """Builds a function without parameters."""
    return ast.FunctionDef(name, ast.arguments([], [], None, [], [], None, []), body, [], None)


def _assign(names: str, value: ast.expr) -> ast.stmt:
    statement = ast.parse(f"{names} = 0").body[0]
    assert isinstance(statement, ast.Assign)
    statement.value = value
    return statement


def _item(name: str, key: Any) -> ast.expr:
    return ast.Subscript(ast.Name(name, ast.Load()), ast.Constant(key), ast.Load())


def _call(name: str, argument: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [argument], [])
