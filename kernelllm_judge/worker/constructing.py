"""Runs the constructor of a completion's ``ModelNew`` on tensors without memory, and describes what it made as JSON.

It runs beside untrusted code; ``render.modelnew.settings`` checks what it replies.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import math
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton
import triton.language
from torch import nn

from kernelllm_judge.core.syntax import bound_names, read_names
from kernelllm_judge.worker.absent_gpu import answer_for_gpu
from kernelllm_judge.worker.recording import Made, Origin, Recorder, encoded, is_plain

NAME = "answer"
"""Of the module that a completion becomes here."""

USUAL = {"torch": torch, "nn": nn, "F": nn.functional, "triton": triton, "tl": triton.language, "math": math}
"""What these names mean in a completion that forgot to import them."""

DEEPEST = 8
"""The most dots in the name of a module."""


def construct(request: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Runs a completion and builds its ``ModelNew``, on the CPU where it asks for values of tensors.

    Args:
        request: ``source``, and the arguments ``args`` and ``kwargs`` as ``constructors.encoded`` writes them.
        directory: the worker's folder, to which the source is written, so that errors have lines.

    Returns:
        ``modules``, described by ``_Description``, and ``numbers``: those that the completion's top level defines.
    """
    path = directory / f"{NAME}.py"
    path.write_text(request["source"], encoding="utf-8")
    answer_for_gpu()
    torch.cuda.is_available = lambda: True
    sys.modules["torch.utils.cpp_extension"] = None  # type: ignore[assignment]  # nothing is compiled for a constructor
    recorder = Recorder(str(path))
    with recorder:
        try:
            return _run(recorder, request)
        except Exception as error:
            if "meta" not in str(error).lower():
                raise
        recorder.device = torch.device("cpu")
        return _run(recorder, request)


def _run(recorder: Recorder, request: Mapping[str, Any]) -> dict[str, Any]:
    torch.manual_seed(0)
    sys.modules[NAME] = module = ModuleType(NAME)
    names = vars(module)
    names.update(USUAL)
    failed = _run_statements(request["source"], recorder.path, names)
    cls = names.get("ModelNew")
    if not isinstance(cls, type):
        raise failed.get("ModelNew", NameError("the class ModelNew is not defined"))
    args, kwargs = _fitting(cls, _decoded(request["args"]), _decoded(request["kwargs"]))
    sys.setprofile(recorder.note_locals)
    try:
        model = cls(*args, **kwargs)
    except NameError as error:
        raise failed.get(error.name or "", error) from None
    finally:
        sys.setprofile(None)
    numbers = {name: value for name, value in names.items() if type(value) in (bool, int, float)}
    return {
        "modules": list(_Description(recorder, names).modules(model)),
        "numbers": {name: value for name, value in numbers.items() if is_plain(value)},
    }


def _run_statements(source: str, path: str, names: dict[str, Any]) -> dict[str, BaseException]:
    """Runs those statements of a completion that ``ModelNew`` needs, one by one, as others may fail.

    Returns:
        Why the last statement that should bind a name failed, by the name.
    """
    failed: dict[str, BaseException] = {}
    flags = __future__.annotations.compiler_flag
    for statement in _needed(ast.parse(source).body):
        try:
            exec(compile(ast.Module([statement], []), path, "exec", flags, dont_inherit=True), names)
        except (Exception, SystemExit) as error:
            failed |= dict.fromkeys(_binds(statement), error)
    return failed


def _needed(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Returns the statements that bind what ``ModelNew`` reads, and what these read."""
    needed, todo = {"ModelNew", "*"}, {"ModelNew", "*"}
    while todo:
        binding = [statement for statement in statements if _binds(statement) & todo]
        todo = {name for statement in binding for name in read_names(statement)} - needed
        needed |= todo
    return [statement for statement in statements if _binds(statement) & needed]


def _binds(statement: ast.stmt) -> set[str]:
    """Returns the names that a statement binds at top level."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    return bound_names(statement)


def _fitting(cls: type, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments that a constructor takes, which may be fewer than the target's; None for each that is missing."""
    parameters = inspect.signature(cls).parameters
    kinds = [p.kind for p in parameters.values()]
    positional = [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        args = args[: len(positional)]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        kwargs = {name: value for name, value in kwargs.items() if name in parameters}
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [n for n, p in parameters.items() if p.default is p.empty and p.kind not in variadic]
    missing = [name for name in needed if name not in positional[: len(args)]]
    return args, dict.fromkeys(missing) | kwargs


@dataclass
class _Description:
    """Describes modules as JSON."""

    recorder: Recorder
    names: dict[str, Any]
    """What the completion's top level defines."""

    def modules(self, model: Any) -> Iterator[dict[str, Any]]:
        """Yields the modules of the completion's own classes, the outer ones first."""
        todo: list[tuple[str, Any]] = [("", model)]
        while todo:
            path, module = todo.pop(0)
            if path.count(".") > DEEPEST:
                raise ValueError(f"the class {type(module).__name__} contains itself")
            own = dict(self._flat(self._attributes(module)))
            owners = self._owners(own)
            registered = {*vars(module).get("_parameters", ()), *vars(module).get("_buffers", ())}
            attributes = []
            for name, value in own.items():
                tensor = isinstance(value, torch.Tensor)
                found = self._tensor(name, value, owners, registered) if tensor else self._described(value)
                attributes.append(
                    {"name": name, "line": self.recorder.lines.get((id(module), name), 0), **found}
                )
                if found["kind"] == "module":
                    todo.append((f"{path}.{name}" if path else name, value))
            yield {"path": path, "class": type(module).__name__, "attributes": attributes}

    def _attributes(self, module: Any) -> dict[str, Any]:
        """Returns the attributes of a module in the order in which they were set first; those of its class come first."""
        own: dict[str, Any] = {}
        for cls in reversed(type(module).__mro__):
            if cls.__module__ == NAME:
                own |= {n: v for n, v in vars(cls).items() if not n.startswith("__") and not _is_method(v)}
        held = {n: v for n, v in vars(module).items() if n not in _INTERNAL}
        for kind in ("_parameters", "_buffers", "_modules"):
            held |= vars(module).get(kind, {})
        order = [name for owner, name in self.recorder.lines if owner == id(module) and name in held]
        return own | {name: held[name] for name in (*order, *held)}

    def _flat(self, attributes: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, Any]]:
        """Yields the attributes, and those of the lists and the plain objects among them, by dotted name."""
        for name, value in attributes.items():
            if not name.isidentifier() and not name.isdigit():
                continue  # nothing that can be read by a dotted name
            yield name, value
            inner: Mapping[str, Any] = {str(index): part for index, part in enumerate(_parts(value))}
            if isinstance(value, SimpleNamespace):
                inner = vars(value)
            if depth < DEEPEST:
                yield from ((f"{name}.{n}", v) for n, v in self._flat(inner, depth + 1))

    def _owners(self, own: dict[str, Any]) -> dict[Made, tuple[str, Origin]]:
        """Returns the attribute that stands for each tensor: a layer's if there is one, else the one nearest to it.

        A layer that only a local variable held becomes an attribute of that name.
        """
        origin = self.recorder.origin
        tensors = {name: origin(value) for name, value in own.items() if isinstance(value, torch.Tensor)}
        needed, held = {each.made for each in tensors.values()}, set(map(id, own.values()))
        for layer, _, _ in self.recorder.modules.values():
            name = self.recorder.locals.get(id(layer), "")
            its = {origin(tensor).made for tensor in _tensors(layer).values()}
            if id(layer) not in held and name and name not in own and needed & its:
                own[name] = layer
        found: dict[Made, tuple[str, Origin]] = {}
        for name, value in own.items():
            for inner, tensor in _tensors(value).items():
                found.setdefault(origin(tensor).made, (f"{name}.{inner}", origin(tensor)))
        for name, each in sorted(tensors.items(), key=lambda item: len(item[1].steps)):
            found.setdefault(each.made, (name, each))
        return found

    def _tensor(
        self,
        name: str,
        value: torch.Tensor,
        owners: Mapping[Made, tuple[str, Origin]],
        registered: Collection[str],
    ) -> dict[str, Any]:
        origin = self.recorder.origin(value)
        owner, theirs = owners[origin.made]
        made, before = origin.made, len(theirs.steps)
        if owner != name and origin.steps[:before] == theirs.steps:
            return {"kind": "alias", "of": f"self.{owner}", "steps": origin.steps[before:]}
        found = {"kind": "tensor", "shape": made.shape, "made": made.call, "steps": origin.steps}
        return {**found, "registered": name in registered}

    def _described(self, value: Any) -> dict[str, Any]:
        if is_plain(value):
            return {"kind": "value", "value": encoded(value)}
        if _is_own(value):
            return {"kind": "module", "class": type(value).__name__}
        parts, stock = len(_parts(value)), _stock(value)
        if stock is not None or parts:
            layer = f"torch.nn.{stock.__name__}" if stock else "list"
            stated = self._stated(value, stock) if stock else {}
            return {"kind": "layer", "layer": layer, "stated": stated, "parts": parts}
        name = self._name(value)
        return {"kind": "other"} if name is None else {"kind": "alias", "of": name, "steps": []}

    def _stated(self, layer: nn.Module, stock: type) -> dict[str, Any]:
        """Returns the plain arguments that a layer was built with, by parameter; those of a copy as it holds them."""
        _, args, kwargs = self.recorder.modules.get(id(layer), (layer, (), {}))
        signature = inspect.signature(stock)
        try:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            found = dict(bound.arguments)
        except TypeError:
            found = {name: getattr(layer, name, layer) for name in signature.parameters}
        return {name: encoded(value) for name, value in found.items() if is_plain(value)}

    def _name(self, value: Any) -> str | None:
        """Returns the name of a function or a kernel of the completion, of a function of torch or tl, or of a dtype."""
        if isinstance(value, torch.dtype):
            return str(value)
        if not callable(value) or isinstance(value, type):
            return None
        spaces = {"": self.names, "torch.": vars(torch), "torch.nn.functional.": vars(nn.functional)}
        spaces["tl."] = vars(triton.language)
        found = (f"{at}{name}" for at, names in spaces.items() for name, v in names.items() if v is value)
        return next(found, None)


_INTERNAL = frozenset(vars(nn.Module()))


def _is_own(module: Any) -> bool:
    """Whether a module's ``forward`` is the completion's; that of a subclass which only builds a stock layer is not."""
    classes = type(module).__mro__ if callable(getattr(module, "forward", None)) else ()
    return next((cls.__module__ == NAME for cls in classes if "forward" in vars(cls)), False)


def _stock(value: Any) -> type | None:
    """Returns the class of torch that a layer is one of."""
    classes = type(value).__mro__ if isinstance(value, nn.Module) else ()
    return next((cls for cls in classes if cls.__module__.startswith("torch.nn.")), None)


def _parts(value: Any) -> list[Any]:
    """Returns the modules in a list or a sequence; none for anything else."""
    listed = isinstance(value, list | tuple) and all(isinstance(item, nn.Module) for item in value)
    return (
        list(value)
        if listed or (isinstance(value, nn.Sequential | nn.ModuleList) and not _is_own(value))
        else []
    )


def _tensors(value: Any) -> dict[str, torch.Tensor]:
    """Returns the parameters and buffers of a stock layer by name."""
    if not isinstance(value, nn.Module) or _is_own(value) or _parts(value):
        return {}
    return dict([*value.named_parameters(), *value.named_buffers()])


def _is_method(value: Any) -> bool:
    function = inspect.isfunction(value) and "." in value.__qualname__
    return function or isinstance(value, property | staticmethod | classmethod)


def _decoded(value: Any) -> Any:
    """Returns what ``constructors.encoded`` wrote."""
    match value:
        case {"tuple": items}:
            return tuple(map(_decoded, items))
        case {"list": items}:
            return list(map(_decoded, items))
        case {"dict": items}:
            return {key: _decoded(item) for key, item in items.items()}
        case {"object": items}:
            return SimpleNamespace(**{key: _decoded(item) for key, item in items.items()})
        case {"tensor": shape, "dtype": dtype}:
            return torch.empty(shape, dtype=getattr(torch, dtype))
        case {"torch": path}:
            found: Any = torch
            for part in path.split("."):
                found = getattr(found, part)
            return found
    return value
