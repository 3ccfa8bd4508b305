"""Records, while a constructor runs, how tensors, layers and attributes come to be.

Tensors get no memory; those with an origin in common are the same weight in several layouts and dtypes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

CONSTANT = frozenset({"ones", "zeros", "full", "eye", "arange", "linspace", "tensor"})
"""Functions of torch whose result is the same every time."""

SAME = frozenset({"clone", "detach", "data", "requires_grad_"})
"""What changes no value of a tensor."""

CARRIED = frozenset(
    {"T", "mT", "t", "transpose", "permute", "contiguous", "expand", "flatten", "reshape", "squeeze"}
    | {"unsqueeze", "view", "to", "type", "bfloat16", "double", "float", "half"}
)
"""Casts and changes of layout, which ``forward`` repeats on the target's tensor."""

LARGEST = 1 << 64
"""The largest magnitude of an integer that is reported."""

ITEMS = 4096
"""The most items of a sequence that is reported."""


@dataclass(eq=False)
class Made:
    """A tensor as it was made first."""

    shape: tuple[int, ...]
    call: dict[str, Any] | None = None
    """The function of torch that makes it, with its arguments, if that gives the same values every time."""


@dataclass(frozen=True)
class Origin:
    """Where a tensor comes from."""

    made: Made
    steps: tuple[dict[str, Any], ...] = ()
    """The casts and changes of layout since then."""


class Recorder(TorchFunctionMode):
    """Puts every tensor on one device, and records what is made. Changes torch's classes in this process for good."""

    def __init__(self, path: str) -> None:
        """``path`` is the file whose lines are recorded."""
        super().__init__()
        self.path, self.device = path, torch.device("meta")
        self.modules: dict[int, tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = {}
        """Modules and the arguments that they were built with, by their ids."""
        self.lines: dict[tuple[int, str], int] = {}
        """The line that set each attribute last, by the module's id and the name, in the order in which they were set first."""
        self.locals: dict[int, str] = {}
        """The local variables that held modules, by the modules' ids."""
        self._origins: dict[int, tuple[torch.Tensor, Origin]] = {}
        self._hook()

    def _hook(self) -> None:
        parameter, recorder = nn.Parameter.__new__, self

        def new_parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
            new = parameter(cls, data, requires_grad)
            return new if data is None else recorder._keep(new, recorder.origin(data))

        def new_module(cls: Any, *args: Any, **kwargs: Any) -> Any:
            module = object.__new__(cls)
            recorder.modules[id(module)] = module, args, kwargs
            return module

        def recording(method: Any) -> Any:
            def set_one(module: Any, name: str, *args: Any, **kwargs: Any) -> None:
                recorder.lines[id(module), name] = recorder._line()
                method(module, name, *args, **kwargs)

            return set_one

        nn.Parameter.__new__ = staticmethod(new_parameter)  # type: ignore[method-assign]
        nn.Module.__new__ = staticmethod(new_module)  # type: ignore[method-assign]
        for name in ("__setattr__", "register_buffer", "register_parameter", "add_module"):
            setattr(nn.Module, name, recording(getattr(nn.Module, name)))

    def _line(self) -> int:
        frames: Iterator[FrameType] = _outwards(sys._getframe(2))
        return next((frame.f_lineno for frame in frames if frame.f_code.co_filename == self.path), 0)

    def note_locals(self, frame: FrameType, event: str, _: Any) -> None:
        """Notes which local variables hold modules when a function returns; for ``sys.setprofile``."""
        if event == "return" and frame.f_code.co_filename == self.path:
            held = {id(value): name for name, value in frame.f_locals.items() if isinstance(value, nn.Module)}
            self.locals = held | self.locals

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called for every function of torch."""
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name == "__get__":
            name = function.__self__.__name__
        if function is torch.Tensor.to:  # without the device
            args = (args[0], *(value for value in args[1:] if isinstance(value, torch.dtype | torch.Tensor)))
            kwargs = {key: kwargs[key] for key in ("dtype", "other") if key in kwargs}
        if function in (torch.Tensor.cuda, torch.Tensor.cpu) or (
            name == "to" and not args[1:] and not kwargs
        ):
            return args[0]
        if "device" in kwargs or function in _device_constructors():
            kwargs["device"] = self.device
        result = function(*args, **kwargs)
        if _changes(name) and args and isinstance(args[0], torch.Tensor):
            self.origin(args[0]).made.call = None
        elif isinstance(result, torch.Tensor):
            return self._recorded(result, function, name, args, kwargs)
        return result

    def _recorded(
        self, result: torch.Tensor, function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Records where the result of a function comes from, and returns it as an object of its own."""
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if first is not None and name in SAME:
            return result if result is first else self._keep(result, self.origin(first))
        step = _call(name, args[1:], kwargs) if first is not None and name in CARRIED else None
        if first is None or step is None:
            constant = name in CONSTANT and function is getattr(torch, name)
            made = Made(tuple(result.shape), _call(name, args, kwargs) if constant else None)
            return self._keep(result, Origin(made))
        origin = self.origin(first)
        if result is first:  # a cast to the type that it has, which the target's tensor may not have
            same = first.detach()
            result = nn.Parameter(same, first.requires_grad) if isinstance(first, nn.Parameter) else same
        step["called"] = name not in ("T", "mT")
        return self._keep(result, Origin(origin.made, (*origin.steps, step)))

    def origin(self, tensor: torch.Tensor) -> Origin:
        """Returns where a tensor comes from."""
        if id(tensor) not in self._origins:
            self._keep(tensor, Origin(Made(tuple(tensor.shape))))
        return self._origins[id(tensor)][1]

    def _keep(self, tensor: torch.Tensor, origin: Origin) -> torch.Tensor:
        self._origins[id(tensor)] = tensor, origin
        return tensor


def is_plain(value: Any) -> bool:
    """Whether a value is None, a bool, number or string, or a list of such values, and not too large."""
    if isinstance(value, tuple | list):
        return len(value) <= ITEMS and all(map(is_plain, value))
    if type(value) is int:
        return abs(value) <= LARGEST
    return value is None or type(value) in (bool, float, str)


def encoded(value: Any) -> Any:
    """Returns a plain value as JSON."""
    return {"tuple": [encoded(item) for item in value]} if isinstance(value, tuple | list) else value


def _call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Describes a call whose arguments are plain values or constants of torch; None for others."""
    kept = {key: value for key, value in kwargs.items() if key not in ("device", "requires_grad")}
    constants = (torch.dtype, torch.memory_format)
    if not all(isinstance(value, constants) or is_plain(value) for value in (*args, *kept.values())):
        return None

    def written(value: Any) -> Any:
        return encoded(value) if is_plain(value) else {"torch": str(value).removeprefix("torch.")}

    return {
        "name": name,
        "args": list(map(written, args)),
        "kwargs": {k: written(v) for k, v in kept.items()},
    }


def _changes(name: str) -> bool:
    """Whether a function changes its first argument, by its name: ``fill_``, ``__setitem__``, ``__iadd__``."""
    if name.endswith("__"):
        return name in ("__set__", "__setitem__") or re.match("__i(?!nvert)", name) is not None
    return name.endswith("_") and name not in SAME


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yields a frame and those around it."""
    while frame is not None:
        yield frame
        frame = frame.f_back
