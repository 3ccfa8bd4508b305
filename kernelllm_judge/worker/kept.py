"""Finds what a kernel module keeps between calls: a call may leave behind nothing that a later one could read.

All that the module's names lead to is gone through after every call: containers, functions with their defaults and closures,
classes and their objects. What a kernel may hold are plain values, which stay as they were on import, and functions that
cache plain values by plain arguments. Counters and tensors show as changes, whatever holds them.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import gc
import types
from collections.abc import Iterator
from typing import Any

import torch

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), range, slice, enum.Enum)
TORCHS = (torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, torch.finfo, torch.iinfo)
FIXED = (
    *(types.ModuleType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.MemberDescriptorType, types.GetSetDescriptorType, types.GenericAlias),
    type(vars(collections.namedtuple("Named", "field"))["field"]),
)
"""Types of what cannot hold anything of the module's own."""
CACHED = type(functools.cache(lambda: None))
[_LINK] = [
    each
    for each in gc.get_referents(functools.cache(id))
    if getattr(each, "__name__", "") == "_lru_list_elem"
]
"""The type of what such a function holds results in."""

Content = dict[str, Any]
"""By the path of a value: what it is, as far as it can change."""


class Kept:
    """What a module's names lead to, as it was on import."""

    def __init__(self, module: types.ModuleType) -> None:
        """Reads the module."""
        self._module = module
        # Triton's interpreter adds names of its own.
        self._names = [name for name in vars(module) if not name.startswith("__")]
        self._before = self._content()

    def changed(self) -> list[str]:
        """Returns what a call has left behind since the import, in words that follow "keeps"."""
        now = self._content()
        strange = [value for value in now.values() if isinstance(value, _Strange)]
        moved = [path for path in now | self._before if now.get(path, now) != self._before.get(path, now)]
        return [*map(str, strange), *(f"what a call has done in `{path}`" for path in moved)]

    def _content(self) -> Content:
        own = self._module.__name__
        content: Content = {}
        seen: set[int] = set()
        waiting = [(name, vars(self._module)[name]) for name in self._names]
        while waiting:
            path, value = waiting.pop()
            if isinstance(value, (*PLAIN, *TORCHS)):
                content[path] = type(value), repr(value)
                continue
            content[path] = id(value)
            if id(value) in seen or isinstance(value, FIXED) or value is vars(self._module):
                continue
            seen.add(id(value))
            parts = _parts(value, own)
            if parts is None:
                content[path] = _Strange(f"a {type(value).__qualname__} in `{path}`")
            else:
                waiting += [(f"{path}{name}", part) for name, part in parts]
        return content


class _Strange(str):
    """Names a value that no kernel may hold. It differs from itself, so that it never counts as unchanged."""


def _parts(value: Any, own: str) -> list[tuple[str, Any]] | None:
    """Returns what a value holds, with the ends of its path; None for one that no kernel may hold."""
    match value:
        case dict() | types.MappingProxyType():
            return [(f"[{key!r:.40}]", part) for key, part in value.items()] + [
                (" keys", key) for key in value
            ]
        case list() | tuple() | collections.deque():
            return [(f"[{number}]", part) for number, part in enumerate(value)] + _attributes(value)
        case set() | frozenset():
            return [(f" member {part!r:.40}", part) for part in value]
        case types.FunctionType() if value.__module__ == own:
            cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
            held = [value.__defaults__, value.__kwdefaults__, vars(value), *cells]
            return [("()", part) for part in held if part is not None]
        case types.BuiltinFunctionType():
            return [("", value.__self__)]
        case types.MethodType():
            return [("", value.__func__), ("", value.__self__)]
        case staticmethod() | classmethod():
            return [("", value.__func__)]
        case property():
            return [("", part) for part in (value.fget, value.fset, value.fdel) if part]
        case functools.partial():
            return [("()", part) for part in (value.func, value.args, value.keywords)]
        case CACHED():
            return [("()", value.__wrapped__)] if all(map(_is_plain, _cached(value))) else None
        case contextlib.nullcontext():
            return _attributes(value)
        case type() if value.__module__ == own:
            return [
                (f".{name}", part)
                for name, part in vars(value).items()
                if not (name.startswith("__") and name.endswith("__"))
            ]
        case types.FunctionType():
            cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
            return [("()", part) for part in cells if isinstance(part, (list, dict, set, tuple))]
        case type():
            return []
    if type(value).__module__ == own:
        return _attributes(value)
    if _is_tritons(value) and str(getattr(getattr(value, "fn", None), "__module__", "")).startswith(
        "triton."
    ):
        return []  # a function of Triton's own library
    if _is_tritons(value):
        # The rest is Triton's own, which the static check keeps out of reach.
        parts = [(f".{n}", part) for n in _OF_TRITON if (part := getattr(value, n, None)) is not None]
        return [*parts, (" attributes", tuple(sorted(vars(value).keys() - _names_of(type(value)))))]
    return None


_OF_TRITON = (
    *("fn", "keys", "values", "configs", "kwargs", "arg_names", "value", "pre_hook", "post_hook"),
    *("early_config_prune", "perf_model", "user_defined_pre_hook", "user_defined_post_hook"),
)


def _attributes(value: Any) -> list[tuple[str, Any]]:
    slots = [
        name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ()) if isinstance(name, str)
    ]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(
        value, "__dict__", {}
    )
    return [(f".{name}", part) for name, part in held.items()]


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _cached(function: Any) -> Iterator[Any]:
    """Yields the arguments and the results that a function has cached."""
    for held in gc.get_referents(function):
        if isinstance(held, dict) and held is not vars(function):
            for value in (*held, *held.values()):
                yield from gc.get_referents(value) if isinstance(value, _LINK) else (value,)


def _is_plain(value: Any) -> bool:
    """Whether a value that is cached can make no later call wrong."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    held = (*PLAIN, *TORCHS, *FIXED, type, types.FunctionType)
    return isinstance(value, held) or type(value) is object or _is_tritons(value)


def _is_tritons(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "triton"


def _names_of(cls: type) -> set[str]:
    """The names in the code of one of Triton's classes, among them those of all attributes that it sets itself."""
    names: set[str] = set()
    waiting: list[Any] = [value for base in cls.__mro__ for value in vars(base).values()]
    while waiting:
        part = waiting.pop()
        if isinstance(part, types.FunctionType):  # or what was put in its place, which calls it
            waiting += [
                part.__code__,
                *(cell.cell_contents for cell in part.__closure__ or () if _is_filled(cell)),
            ]
        elif isinstance(part, types.CodeType):
            names |= {*part.co_names}
            waiting += [each for each in part.co_consts if isinstance(each, types.CodeType)]
    return names
