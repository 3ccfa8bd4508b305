"""Remembers the arguments with which modules are constructed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torch import nn


@dataclass
class Constructions:
    """The constructor arguments of modules, by the module itself."""

    _known: dict[int, tuple[nn.Module, dict[str, Any] | None]] = field(default_factory=dict)
    """None where there were more positional arguments than the constructor has names for."""

    def arguments(self, module: nn.Module) -> Mapping[str, Any] | None:
        """Returns what the constructor was called with, by parameter, without what equals its default; None if unknown."""
        _, found = self._known.get(id(module), (module, None))
        if found is None:
            return None
        parameters = inspect.signature(type(module).__init__).parameters
        given = {}
        for name, value in found.items():
            default = parameters[name].default if name in parameters else inspect.Parameter.empty
            same = type(value) is type(default) and isinstance(value, bool | int | float | str | None)
            if not (same and value == default):
                given[name] = value
        return given

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Remembers the modules that are constructed inside the block."""
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_name != "__init__" or not code.co_argcount:
            return
        values = frame.f_locals
        module = values.get(code.co_varnames[0])
        # The outermost constructor begins first; those of its bases are called later.
        if not isinstance(module, nn.Module) or id(module) in self._known:
            return
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        given = {name: values[name] for name in names}
        after = code.co_argcount + code.co_kwonlyargcount
        more = code.co_flags & inspect.CO_VARARGS and values[code.co_varnames[after]]
        if code.co_flags & inspect.CO_VARKEYWORDS:
            given |= values[code.co_varnames[after + bool(code.co_flags & inspect.CO_VARARGS)]]
        self._known[id(module)] = (module, None if more else given)
