"""Collects the names that code mentions, by which it may read attributes."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from kernelllm_judge.target.reads.source import BY_NAME, asked_by_name, tried_on_self
from kernelllm_runtime.pins.functions import Reads, cells, function_of, is_library, reads_of
from kernelllm_runtime.pins.objects import state_of
from kernelllm_runtime.source.syntax import words

_WHOLE = words(
    "vars __dict__ __getstate__ __reduce_ex__ asdict astuple attrgetter methodcaller getmembers dir deepcopy dumps "
    "__getattribute__ locals _asdict __slots__ fields get_buffer get_parameter get_submodule buffers parameters "
    "named_buffers named_parameters state_dict _buffers _parameters _modules"
)
"""Names by which code gets at attributes without naming them."""
_FORMATS = words("format format_map vformat")
_CLASSES = words("__class__ type isinstance issubclass __dict__")
_IN_ORDER = words("children named_children modules named_modules")
"""Further names by which code goes through the parts of a module in their order."""
NEVER_RUN = words(
    "__init__ __new__ __post_init__ __repr__ __str__ __setstate__ __getstate__ __reduce__ __reduce_ex__ __deepcopy__ "
    "__copy__ __init_subclass__ __class_getitem__ __del__ __format__ __setattr__ __delattr__ __annotate__ "
    "__annotate_func__"
)
"""Special methods that a call does not run by itself."""
FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    staticmethod,
    classmethod,
    property,
    functools.cached_property,
)
_OUTSIDE = words(
    "environ environb getenv __globals__ __builtins__ f_globals f_back _getframe import_module __import__ read_text "
    "read_bytes backends are_deterministic_algorithms_enabled get_num_threads get_float32_matmul_precision initial_seed "
    "get_rng_state getrecursionlimit"
)
"""Names by which code reads what no object holds, or holds where nothing is looked for."""
_OUTSIDE_GLOBALS = words(
    "eval exec globals open __import__ environ getenv import_module time datetime threading platform socket"
)


class Mentions:
    """The names in code that can be reached from ``forward``.

    An attribute counts as read if its name is among them. This may be more than is read, and is never less: where
    code reads attributes by computed names, every attribute counts.
    """

    def __init__(self, module: nn.Module) -> None:
        """``module`` is the one that is called; it is not looked into."""
        self.module = module
        self.names: set[str] = set()
        self.asked: set[str] = set()
        """Strings that code may use with ``getattr`` and ``hasattr``."""
        self.everything = False
        self.by_class = False
        """Whether code reads values of classes other than through their instances."""
        self.asks_class = False
        """Whether code may ask which class an object has."""
        self.in_order = False
        """Whether code may go through all parts of an object, whose order then matters."""
        self._codes: set[types.CodeType] = set()
        self._visited: dict[int, Any] = {}
        """Values that were looked into by ``id``, kept so that no other object gets the ``id`` of one."""

    def size(self) -> tuple[int, ...]:
        """Returns what differs as soon as anything is added."""
        return (
            len(self.names),
            len(self.asked),
            self.everything,
            self.by_class,
            self.asks_class,
            self.in_order,
        )

    def read(self, name: str) -> bool:
        """Whether an attribute of this name counts as read."""
        return self.everything or name in self.names or name in self.asked

    def add(self, code: types.CodeType) -> None:
        """Adds the names in a code object."""
        if code in self._codes:
            return
        self._codes.add(code)
        read = reads_of(code)
        self.names |= read.names
        if "site-packages" in code.co_filename:
            return
        if read.names & _WHOLE:
            self.everything = True
        self.in_order |= bool(read.names & (_WHOLE | _IN_ORDER))
        self.asks_class |= bool(read.names & _CLASSES)
        if "type" in read.globals or "__class__" in read.names:
            self.by_class = True
        if read.names & _FORMATS:
            self.asked |= read.strings
        if read.names & {*BY_NAME}:
            asked = asked_by_name(code)
            self.everything |= asked is None
            self.asked |= read.strings if asked is None else asked
        self.asked |= tried_on_self(code)

    def add_within(self, value: Any) -> None:
        """Adds the names in the code that a value holds, at any depth."""
        function = function_of(value)
        if id(value) in self._visited or value is None or isinstance(value, str | int | float | torch.Tensor):
            return
        self._visited[id(value)] = value
        inner: list[Any] = []
        if isinstance(function, types.FunctionType):
            inner = [cell.cell_contents for cell in cells(function).values()]
            inner += [getattr(value, "__self__", None)]
            if not is_library(function.__globals__.get("__name__") or "", ""):
                self.add(function.__code__)
                used = reads_of(function.__code__).globals
                inner += [function.__globals__[key] for key in used if key in function.__globals__]
        elif isinstance(value, functools.partial):
            inner = [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, Mapping):
            inner = [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            inner = list(value)
        elif isinstance(value, type):
            if not is_library(value.__module__, ""):
                inner = [
                    each
                    for key, each in vars(value).items()
                    if key not in NEVER_RUN and isinstance(each, FUNCTIONS)
                ]
        elif not isinstance(value, types.ModuleType) and value is not self.module:
            inner = [type(value), *state_of(value).values()]
        for each in inner:
            self.add_within(each)


def reads_outside(read: Reads) -> bool:
    """Returns whether code reads what no object holds, or what is held where nothing is looked for."""
    modules = "sys" in read.globals and "modules" in read.names
    return bool(_OUTSIDE & read.names or _OUTSIDE_GLOBALS & {*read.globals}) or modules
