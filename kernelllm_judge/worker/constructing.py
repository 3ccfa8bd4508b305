"""Runs the constructor of a completion's ``ModelNew`` on tensors without memory, and describes what it made as JSON.

Everything here runs beside untrusted code, and what it replies is checked by ``render.modelnew.built``.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import itertools
import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import torch
import triton
import triton.language
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from kernelllm_judge.core.syntax import bound_names
from kernelllm_judge.worker.absent_gpu import answer_for_gpu

NAME = "answer"
"""Of the module that a completion becomes here."""

USUAL = {
    "torch": torch,
    "nn": nn,
    "F": nn.functional,
    "triton": triton,
    "tl": triton.language,
    "math": math,
}
"""What these names mean in a completion that forgot to import them."""

CONSTANT = frozenset({"ones", "zeros", "full", "eye", "arange", "linspace", "tensor"})
"""Functions of torch whose result is the same every time."""

SAME = frozenset({"clone", "detach", "data", "requires_grad_", "cpu", "cuda"})
"""What changes no value of a tensor."""

CARRIED = frozenset(
    [
        "T",
        "mT",
        "t",
        "transpose",
        "permute",
        "contiguous",
        "expand",
        "flatten",
        "reshape",
        "squeeze",
        "unsqueeze",
        "view",
        "to",
        "type",
        "bfloat16",
        "double",
        "float",
        "half",
    ]
)
"""Casts and changes of layout, which ``forward`` repeats on the target's tensor."""

LARGEST = 1 << 64
"""The largest magnitude of an integer that is reported."""

ITEMS = 4096
"""The most items of a sequence that is reported."""

DEEPEST = 8
"""The most dots in the name of a module."""


def construct(request: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Runs a completion and its ``ModelNew``, and returns ``{"modules": [...], "numbers": {...}}``.

    A constructor that asks for values of tensors is run again on the CPU.

    Args:
        request: ``source`` and the encoded arguments ``args`` and ``kwargs``.
        directory: the worker's folder, to which the source is written, so that errors have lines.
    """
    path = directory / f"{NAME}.py"
    path.write_text(request["source"], encoding="utf-8")
    answer_for_gpu()
    torch.cuda.is_available = lambda: True
    args = [_decoded(value) for value in request["args"]]
    kwargs = {name: _decoded(value) for name, value in request["kwargs"].items()}
    with _Recorder(str(path)) as recorder:
        try:
            return recorder.run(request["source"], args, kwargs)
        except Exception as error:
            if "meta" not in str(error).lower():
                raise
        recorder.device = torch.device("cpu")
        return recorder.run(request["source"], args, kwargs)


@dataclass(eq=False)
class _Made:
    """A tensor as it was made first."""

    shape: tuple[int, ...]
    call: dict[str, Any] | None = None
    """The function of torch that makes it, with its arguments, if that gives the same values every time."""


@dataclass(frozen=True)
class _Origin:
    """Where a tensor comes from."""

    made: _Made
    steps: tuple[dict[str, Any], ...] = ()
    """The casts and changes of layout since then."""


class _Recorder(TorchFunctionMode):
    """Puts every tensor on one device, and records how tensors, layers and attributes come to be."""

    def __init__(self, path: str) -> None:
        """``path`` is the file with the completion."""
        super().__init__()
        self.path, self.device = path, torch.device("meta")
        self._origins: dict[int, tuple[torch.Tensor, _Origin]] = {}
        self._given: dict[int, tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = {}
        """Modules and the arguments that they were built with."""
        self._set: dict[tuple[int, str], tuple[int, int]] = {}
        """Order and line of each attribute, by the module and its name."""
        self._locals: dict[int, str] = {}
        """The local variables that held modules."""
        self._numbers = itertools.count()
        self._hook()

    def _hook(self) -> None:
        """Replaces, in this process, what makes parameters and modules, and what sets their attributes."""
        parameter, recorder = nn.Parameter.__new__, self

        def new_parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
            new = parameter(cls, data, requires_grad)
            if data is not None:
                recorder._origins[id(new)] = new, recorder.origin(data)
            return new

        def new_module(cls: Any, *args: Any, **kwargs: Any) -> Any:
            module = object.__new__(cls)
            recorder._given[id(module)] = module, args, kwargs
            return module

        def recording(method: Any) -> Any:
            def set_one(module: Any, name: str, *args: Any, **kwargs: Any) -> None:
                order = recorder._set.get((id(module), name), (next(recorder._numbers), 0))[0]
                recorder._set[id(module), name] = order, recorder._line()
                method(module, name, *args, **kwargs)

            return set_one

        nn.Parameter.__new__ = staticmethod(new_parameter)
        nn.Module.__new__ = staticmethod(new_module)
        for name in ("__setattr__", "register_buffer", "register_parameter", "add_module"):
            setattr(nn.Module, name, recording(getattr(nn.Module, name)))

    def _line(self) -> int:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self.path:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0

    def run(self, source: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Runs a completion and builds its ``ModelNew``."""
        torch.manual_seed(0)
        module = ModuleType(NAME)
        sys.modules[NAME] = module
        names = vars(module)
        names.update(USUAL)
        failed = _run_statements(source, self.path, names)
        cls = names.get("ModelNew")
        if not isinstance(cls, type):
            raise failed.get("ModelNew", NameError("the class ModelNew is not defined"))

        def note_locals(frame: FrameType, event: str, _: Any) -> None:
            if event == "return" and frame.f_code.co_filename == self.path:
                held = {id(v): n for n, v in frame.f_locals.items() if isinstance(v, nn.Module)}
                self._locals = held | self._locals

        args, kwargs = _fitting(cls, args, kwargs)
        sys.setprofile(note_locals)
        try:
            model = cls(*args, **kwargs)
        except NameError as error:
            raise failed.get(error.name, error) from None
        finally:
            sys.setprofile(None)
        numbers = {n: v for n, v in names.items() if type(v) in (bool, int, float) and _is_plain(v)}
        return {"modules": list(_Description(self, names).modules(model)), "numbers": numbers}

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called for every function of torch."""
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name == "__get__":
            name = function.__self__.__name__
        if function is torch.Tensor.to:
            args = (args[0], *(value for value in args[1:] if isinstance(value, torch.dtype | torch.Tensor)))
            kwargs = {key: kwargs[key] for key in ("dtype", "other") if key in kwargs}
            name = "to" if len(args) > 1 or kwargs else "cpu"
        if name in ("cpu", "cuda") and args and isinstance(args[0], torch.Tensor):
            return args[0]
        if "device" in kwargs or function in _device_constructors():
            kwargs["device"] = self.device
        result = function(*args, **kwargs)
        if _changes(name):
            for changed in args[:1]:
                if isinstance(changed, torch.Tensor):
                    self.origin(changed).made.call = None
        elif isinstance(result, torch.Tensor):
            return self._recorded(result, function, name, args, kwargs)
        return result

    def _recorded(
        self, result: torch.Tensor, function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Records where the result of a function comes from, and returns it as an object of its own."""
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if first is None or name not in SAME | CARRIED:
            call = _call(name, args, kwargs) if function is getattr(torch, name, None) else None
            made = _Made(tuple(result.shape), call if name in CONSTANT else None)
            self._origins[id(result)] = result, _Origin(made)
            return result
        origin = self.origin(first)
        if name in CARRIED:
            step = _call(name, args[1:], kwargs)
            if step is None:
                origin = _Origin(_Made(tuple(result.shape)))
            else:
                step["called"] = name not in ("T", "mT")
                origin = _Origin(origin.made, (*origin.steps, step))
            if result is first:  # a cast to the type that it has, which the target's tensor may not have
                same = first.detach()
                result = nn.Parameter(same, first.requires_grad) if isinstance(first, nn.Parameter) else same
        if result is not first:
            self._origins[id(result)] = result, origin
        return result

    def origin(self, tensor: torch.Tensor) -> _Origin:
        """Returns where a tensor comes from."""
        known = self._origins.get(id(tensor))
        if known is None:
            known = self._origins[id(tensor)] = tensor, _Origin(_Made(tuple(tensor.shape)))
        return known[1]

    def attributes(self, module: Any) -> dict[str, Any]:
        """Returns the attributes of a module in the order in which they were set first; those of its class come first."""
        own: dict[str, Any] = {}
        for cls in reversed(type(module).__mro__):
            if cls.__module__ == NAME:
                own |= {n: v for n, v in vars(cls).items() if not n.startswith("__") and not _is_method(v)}
        held = {n: v for n, v in vars(module).items() if n not in _INTERNAL}
        for kind in ("_parameters", "_buffers", "_modules"):
            held |= vars(module).get(kind, {})
        own |= dict(sorted(held.items(), key=lambda item: self._set.get((id(module), item[0]), (0, 0))[0]))
        return own

    def line(self, module: Any, name: str) -> int:
        """Returns the line that set an attribute last; 0 where that is not known."""
        return self._set.get((id(module), name), (0, 0))[1]

    def stated(self, layer: nn.Module) -> dict[str, Any]:
        """Returns the plain arguments that a layer was built with, by parameter; those of a copy as it holds them."""
        _, args, kwargs = self._given.get(id(layer), (layer, (), {}))
        signature = inspect.signature(_stock(layer) or type(layer))
        try:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            found = dict(bound.arguments)
        except TypeError:
            found = {name: getattr(layer, name) for name in signature.parameters if hasattr(layer, name)}
        return {name: _encoded(value) for name, value in found.items() if _is_plain(value)}

    def local_name(self, layer: nn.Module) -> str:
        """Returns the local variable that held a layer; empty if none did."""
        return self._locals.get(id(layer), "")

    def layers(self) -> Iterator[nn.Module]:
        """Yields the stock layers that were built, in order."""
        yield from (module for module, _, _ in self._given.values() if _own_class(module) is None)


@dataclass
class _Description:
    """Describes modules as JSON."""

    recorder: _Recorder
    names: dict[str, Any]
    """What the completion's top level defines."""

    def modules(self, model: Any) -> Iterator[dict[str, Any]]:
        """Yields the modules of the completion's own classes, the outer ones first."""
        todo: list[tuple[str, Any]] = [("", model)]
        while todo:
            path, module = todo.pop(0)
            if path.count(".") > DEEPEST:
                raise ValueError(f"the class {type(module).__name__} contains itself")
            own = dict(self._flat(self.recorder.attributes(module)))
            owners = self._owners(own)
            registered = {*vars(module).get("_parameters", ()), *vars(module).get("_buffers", ())}
            attributes = []
            for name, value in own.items():
                described = self._tensor(name, value, owners, registered) or self._described(value)
                attributes.append({"name": name, "line": self.recorder.line(module, name), **described})
                if described["kind"] == "module":
                    todo.append((f"{path}.{name}" if path else name, value))
            yield {"path": path, "class": type(module).__name__, "attributes": attributes}

    def _flat(self, attributes: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, Any]]:
        """Yields the attributes, and those of the lists and the plain objects among them, by dotted name."""
        for name, value in attributes.items():
            yield name, value
            inner: Mapping[str, Any] = {}
            if (parts := _parts(value)) is not None:
                inner = {str(index): part for index, part in enumerate(parts)}
            elif isinstance(value, SimpleNamespace):
                inner = {
                    n: v for n, v in vars(value).items() if _is_plain(v) or isinstance(v, SimpleNamespace)
                }
            if depth < 4:
                yield from ((f"{name}.{n}", v) for n, v in self._flat(inner, depth + 1))

    def _owners(self, own: dict[str, Any]) -> dict[_Made, tuple[str, _Origin]]:
        """Returns the attribute that stands for each tensor: a layer's if there is one, else the one nearest to it.

        A layer that only a local variable held becomes an attribute of that name.
        """
        needed = {self.recorder.origin(v).made for v in own.values() if isinstance(v, torch.Tensor)}
        held = {id(value) for value in own.values()}
        for layer in self.recorder.layers():
            name = self.recorder.local_name(layer)
            tensors = [self.recorder.origin(tensor).made for tensor in _tensors(layer).values()]
            if id(layer) not in held and name and name not in own and needed & set(tensors):
                own[name] = layer
        found: dict[_Made, tuple[str, _Origin]] = {}
        for name, value in own.items():
            for inner, tensor in _tensors(value).items():
                origin = self.recorder.origin(tensor)
                found.setdefault(origin.made, (f"{name}.{inner}", origin))
        plain = {name: value for name, value in own.items() if isinstance(value, torch.Tensor)}
        origins = {name: self.recorder.origin(value) for name, value in plain.items()}
        for name, origin in sorted(origins.items(), key=lambda item: len(item[1].steps)):
            found.setdefault(origin.made, (name, origin))
        return found

    def _tensor(
        self, name: str, value: Any, owners: dict[_Made, tuple[str, _Origin]], registered: Collection[str]
    ) -> dict[str, Any] | None:
        if not isinstance(value, torch.Tensor):
            return None
        origin = self.recorder.origin(value)
        owner, theirs = owners[origin.made]
        before, steps = theirs.steps, list(origin.steps)
        if owner != name and origin.steps[: len(before)] == before:
            return {"kind": "alias", "of": f"self.{owner}", "steps": steps[len(before) :]}
        made = origin.made
        return {
            "kind": "tensor",
            "shape": list(made.shape),
            "made": made.call,
            "registered": name in registered,
            "steps": steps,
        }

    def _described(self, value: Any) -> dict[str, Any]:
        if _is_plain(value):
            return {"kind": "value", "value": _encoded(value)}
        if isinstance(value, nn.Module) and _own_class(value) is not None:
            return {"kind": "module", "class": type(value).__name__}
        parts = len(_parts(value) or ())
        if (stock := _stock(value)) is not None:
            name = f"torch.nn.{stock.__name__}"
            return {"kind": "layer", "layer": name, "stated": self.recorder.stated(value), "parts": parts}
        if parts:
            return {"kind": "layer", "layer": "list", "stated": {}, "parts": parts}
        if (name := self._name(value)) is not None:
            return {"kind": "alias", "of": name, "steps": []}
        return {"kind": "other"}

    def _name(self, value: Any) -> str | None:
        """Returns the name of a function or a kernel of the completion, of a function of torch or tl, or of a dtype."""
        if isinstance(value, torch.dtype):
            return str(value)
        for prefix, names in (
            ("", self.names),
            ("torch.", vars(torch)),
            ("torch.nn.functional.", vars(nn.functional)),
            ("tl.", vars(triton.language)),
        ):
            for name, other in names.items():
                if other is value and callable(value) and not isinstance(value, type):
                    return f"{prefix}{name}"
        return None


_INTERNAL = frozenset(vars(nn.Module()))


def _run_statements(source: str, path: str, names: dict[str, Any]) -> dict[str, BaseException]:
    """Runs the statements of a completion one by one, as much of it may never be used.

    Returns:
        Why the last statement that should bind a name failed, by the name.
    """
    failed: dict[str, BaseException] = {}
    flags = __future__.annotations.compiler_flag
    for statement in ast.parse(source).body:
        try:
            exec(compile(ast.Module([statement], []), path, "exec", flags, dont_inherit=True), names)
        except (Exception, SystemExit) as error:
            failed |= dict.fromkeys(bound_names(ast.Module([statement], [])), error)
    return failed


def _changes(name: str) -> bool:
    """Whether a function changes its first argument, by its name: ``fill_``, ``__setitem__``, ``__iadd__``."""
    special = name in ("__set__", "__setitem__") or re.fullmatch(r"__i(?!nvert)\w+__", name) is not None
    return special or (name.endswith("_") and not name.endswith("__") and name not in SAME)


def _fitting(cls: type, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments that a constructor takes; None for each that is missing."""
    parameters = inspect.signature(cls).parameters.values()
    kinds = {p.kind for p in parameters}
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        args = args[: len(positional)]
    named = {p.name for p in parameters}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        kwargs = {name: value for name, value in kwargs.items() if name in named}
    given = {p.name for p in positional[: len(args)]} | kwargs.keys()
    missing = [
        p.name
        for p in parameters
        if p.name not in given
        and p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY)
    ]
    return args, kwargs | dict.fromkeys(missing)


def _own_class(module: Any) -> type | None:
    """Returns the completion's class that has the ``forward`` of a module; None for stock layers and what only builds them."""
    for cls in type(module).__mro__:
        if "forward" in vars(cls):
            return cls if cls.__module__ == NAME else None
    return None


def _stock(value: Any) -> type | None:
    """Returns the class of torch that a layer is one of."""
    classes = type(value).__mro__ if isinstance(value, nn.Module) else ()
    return next((cls for cls in classes if cls.__module__.startswith("torch.nn.")), None)


def _parts(value: Any) -> list[Any] | None:
    """Returns the modules in a list or a sequence; None for anything else."""
    if isinstance(value, nn.Sequential | nn.ModuleList) and _own_class(value) is None:
        return list(value)
    if isinstance(value, list | tuple) and value and all(isinstance(item, nn.Module) for item in value):
        return list(value)
    return None


def _tensors(value: Any) -> dict[str, torch.Tensor]:
    """Returns the parameters and buffers of a stock layer by name."""
    if not isinstance(value, nn.Module) or _own_class(value) is not None or _parts(value) is not None:
        return {}
    return dict([*value.named_parameters(), *value.named_buffers()])


def _is_method(value: Any) -> bool:
    return isinstance(value, property | staticmethod | classmethod) or (
        inspect.isfunction(value) and value.__qualname__.count(".") > 0
    )


def _is_plain(value: Any) -> bool:
    """Whether a value is None, a bool, number or string, or a list of such values."""
    if isinstance(value, tuple | list):
        return len(value) <= ITEMS and all(map(_is_plain, value))
    if type(value) is int:
        return abs(value) <= LARGEST
    return value is None or type(value) in (bool, float, str)


def _encoded(value: Any) -> Any:
    return {"tuple": [_encoded(item) for item in value]} if isinstance(value, tuple | list) else value


def _call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Describes a call whose arguments are plain values or constants of torch; None for others."""
    kept = {key: value for key, value in kwargs.items() if key not in ("device", "requires_grad")}
    if not all(map(_is_argument, [*args, *kept.values()])):
        return None
    written = {key: _argument(value) for key, value in kept.items()}
    return {"name": name, "args": [_argument(value) for value in args], "kwargs": written}


def _is_argument(value: Any) -> bool:
    return isinstance(value, torch.dtype | torch.memory_format) or _is_plain(value)


def _argument(value: Any) -> Any:
    return _encoded(value) if _is_plain(value) else {"torch": str(value).removeprefix("torch.")}


def _decoded(value: Any) -> Any:
    """Returns what ``constructors.encoded`` wrote."""
    match value:
        case {"tuple": items}:
            return tuple(map(_decoded, items))
        case {"list": items}:
            return list(map(_decoded, items))
        case {"dict": items}:
            return {key: _decoded(item) for key, item in items.items()}
        case {"torch": path}:
            found: Any = torch
            for part in path.split("."):
                found = getattr(found, part)
            return found
        case {"tensor": shape, "dtype": dtype}:
            return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
        case {"object": attributes}:
            return SimpleNamespace(**{name: _decoded(item) for name, item in attributes.items()})
    return value
