"""Finds what a module's ``forward`` reads besides its inputs, parameters and plain attributes, and pins it.

What is read is found from code: from ``forward``, from all that it mentions, and from all that ran when the original was
called. An attribute counts as read if its name occurs there. This may be more than is read, and is never less: where code
reads attributes by computed names, every attribute counts.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
import types
from argparse import Namespace
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pytest_kernelllm.core import pins
from pytest_kernelllm.core.pins import MISSING, Unpinnable
from pytest_kernelllm.core.targets import Scalar, TensorSpec
from pytest_kernelllm.discover.errors import TargetError
from pytest_kernelllm.discover.names import Bindings, module_names


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WHOLE = _words(
    "vars __dict__ __getstate__ __reduce_ex__ asdict astuple attrgetter methodcaller getmembers dir deepcopy dumps "
    "__getattribute__ locals _asdict __slots__ fields get_buffer get_parameter get_submodule buffers parameters "
    "named_buffers named_parameters state_dict _buffers _parameters _modules"
)
"""Names by which code gets at attributes without naming them."""
_BY_NAME = ("getattr", "hasattr")
_NEVER_RUN = _words(
    "__init__ __new__ __post_init__ __repr__ __str__ __setstate__ __getstate__ __reduce__ __reduce_ex__ __deepcopy__ "
    "__copy__ __init_subclass__ __class_getitem__ __del__ __format__ __setattr__ __delattr__ __annotate__ "
    "__annotate_func__"
)
"""Special methods that a call does not run by itself."""
_ALWAYS_RUN = frozenset(("forward", "backward", "setup_context", "jvp"))
_OUTSIDE = _words(
    "environ environb getenv __globals__ __builtins__ f_globals f_back _getframe import_module __import__ read_text "
    "read_bytes"
)
"""Names by which code reads what no object holds, or holds where nothing is looked for."""
_OUTSIDE_GLOBALS = _words("eval exec globals open __import__ environ getenv import_module")
_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    staticmethod,
    classmethod,
    property,
    functools.cached_property,
)
_INTERNAL = frozenset(vars(nn.Module())) | {"forward", "call_super_init", "dump_patches"}


@contextmanager
def recording(ran: set[types.CodeType]) -> Iterator[None]:
    """Adds the code that runs inside the block to ``ran``, without that of torch and the standard library."""

    def note(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "call" and not pins.is_basic(frame.f_globals.get("__name__") or ""):
            ran.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def state(
    module: nn.Module, known: Mapping[str, TensorSpec | Scalar], ran: Set[types.CodeType], where: str
) -> dict[str, str]:
    """Returns the pins of a module, by name; see ``core.pins``.

    Args:
        module: a built module that was not called yet.
        known: what ``attributes`` returns for it.
        ran: the code that ran when another one was called; empty if it was not called.
        where: names the target in messages.

    Raises:
        TargetError: ``forward`` reads a value that cannot be compared.
    """
    try:
        return _Walk(module, known, ran).pins()
    except _Refused as refused:
        raise TargetError(f"{where}: {refused}; no kernel can be adopted for it.") from None


class _Refused(Exception):
    """A value cannot be pinned; the text names it."""


class _Walk:
    """Goes through the objects that code can reach from ``forward``, until no further names are found."""

    def __init__(
        self, module: nn.Module, known: Mapping[str, TensorSpec | Scalar], ran: Set[types.CodeType]
    ) -> None:
        self.module, self.known, self.ran = module, known, bool(ran)
        self.library = pins.is_library(type(module).__module__, "")
        self.names: set[str] = set()
        self.asked: set[str] = set()
        """Strings that code may use with ``getattr`` and ``hasattr``."""
        self.everything = False
        self.by_class = False
        """Whether code reads values of classes other than through their instances."""
        self.found: dict[str, str] = {}
        self._codes: set[types.CodeType] = set()
        self._visited: set[tuple[int, str]] = set()
        self._outer: list[int] = []
        for code in ran:
            self._code(code)

    def pins(self) -> dict[str, str]:
        """Returns all pins."""
        before = None
        while before != (now := (len(self.names), len(self.asked), self.everything, self.by_class)):
            before = now
            self.found, self._visited = {}, set()
            self._module()
        return {**dict(sorted(self.found.items())), **pins.ties(self.module)}

    def _module(self) -> None:
        for path, part in self.module.named_modules(remove_duplicate=False):
            prefix = f"{path}." if path else ""
            self._class(f"global:self.{prefix}__class__", type(part))
            self._attributes(f"value:{prefix}", part)
            for name, tensor in (*part._parameters.items(), *part._buffers.items()):
                if tensor is not None and _is_fixed(tensor) and self._matters(part, name):
                    self._leaf(f"value:{prefix}{name}", tensor)

    def _matters(self, part: nn.Module, name: str) -> bool:
        counted = isinstance(part, nn.modules.batchnorm._NormBase) and name == "num_batches_tracked"
        if counted and part.momentum is not None:
            return False  # it is counted up, and no result depends on it
        return _is_torch(type(part)) or self.read(name)

    def _attributes(self, prefix: str, part: nn.Module) -> None:
        ours = not _is_torch(type(part))
        for name, value in _held(part):
            # torch's own layers derive their private attributes from public ones.
            public = not ours and not name.startswith("_") and isinstance(value, list | tuple | dict | set)
            if (self.read(name) or public) and not self._is_known(
                f"{prefix}{name}".partition(":")[2], value, ours
            ):
                self._value(f"{prefix}{name}", value)
        if ours:
            self._absent(prefix, part)

    def _is_known(self, name: str, value: Any, ours: bool) -> bool:
        """Whether the plain attributes of a domain already determine a value."""
        if isinstance(value, list | tuple):
            return (
                not ours
                and len(value) > 0
                and all(f"{name}[{index}]" in self.known for index in range(len(value)))
            )
        if name not in self.known:
            return False
        if isinstance(value, types.BuiltinFunctionType):
            return value.__self__ is None or isinstance(value.__self__, types.ModuleType | type)
        return not isinstance(value, types.FunctionType) or pins.settled(value)

    def _absent(self, prefix: str, owner: Any) -> None:
        for name in sorted(self.asked):
            if getattr(owner, name, MISSING) is MISSING:
                self.found[f"{prefix}{name}"] = pins.text_of(MISSING, self.module)

    def read(self, name: str) -> bool:
        """Whether an attribute of this name counts as read."""
        return self.everything or name in self.names or name in self.asked

    # ------------------------------------------------------------------ values

    def _value(self, name: str, value: Any) -> None:
        """Pins a value under a name, and follows the code in it."""
        function = pins.function_of(value)
        if id(value) in self._outer or value is self.module:
            self._leaf(name, value)
            return
        self._outer.append(id(value))
        if isinstance(function, types.FunctionType) or isinstance(value, _CALLABLES):
            self._code_in(value)
            self._leaf(name, value)
        elif isinstance(value, type):
            self._leaf(name, value)
            self._class(_as_code(name), value)
        elif isinstance(value, types.ModuleType):
            self._of_module(name, value)
        elif pins.is_plain_object(value) and not _is_opaque(value):
            self._object(name, value)
        else:
            self._code_in(value)
            self._leaf(name, value)
        self._outer.pop()

    def _object(self, name: str, value: Any) -> None:
        """Pins the class of an object, and those attributes that are read."""
        try:
            pins._reduced(value)
        except Unpinnable as error:
            raise _Refused(f"{_shown(name)} {error}") from None
        self._leaf(f"{name}.__class__", type(value))
        for key, held in pins.state_of(value).items():
            if self.read(key):
                self._value(f"{name}.{key}", held)
        self._class(f"{_as_code(name)}.__class__", type(value))
        self._absent(f"{name}.", value)

    def _leaf(self, name: str, value: Any = None) -> None:
        """Pins what a name reaches, which must be ``value`` unless that is None."""
        try:
            with torch.no_grad():
                text = pins.pinned(self.module, name)
                if value is not None and pins.found(self.module, name) is not value:
                    raise Unpinnable(
                        "is another object each time it is read, or cannot be reached by this name"
                    )
                if text != pins.pinned(self.module, name):
                    raise Unpinnable("changes each time it is read")
        except Unpinnable as error:
            raise _Refused(f"{_shown(name)} {error}") from None
        self.found[name] = text

    # ------------------------------------------------------------------ code

    def _class(self, name: str, cls: type) -> None:
        """Follows the methods of a class that may run, and pins the class's own values that are read.

        ``name`` reaches the class in the code of ``forward``.
        """
        if id(cls) in self._outer:
            self.by_class = True  # its values are pinned where it was reached first
            return
        if (id(cls), name) in self._visited:
            return
        self._visited.add((id(cls), name))
        self._outer.append(id(cls))
        self._members(name, cls)
        self._outer.pop()

    def _members(self, name: str, cls: type) -> None:
        seen: set[str] = set()
        for base in cls.__mro__:
            if _is_torch(base) or base.__module__ == "typing":
                continue
            library = pins.is_library(base.__module__, "") and not self.library
            for key, value in list(vars(base).items()):
                path = f"{name}.{key}" if key not in seen else f"{name}.<{base.__name__}>.{key}"
                first = key not in seen
                seen.add(key)
                if isinstance(value, _FUNCTIONS):
                    function = pins.function_of(value)
                    if library and isinstance(function, types.FunctionType) and self._runs(key):
                        self._code(function.__code__)
                    elif self._runs(key) and not (self.ran and _is_generated(function)):
                        if isinstance(value, functools.cached_property) and path.startswith("global:self."):
                            # Instances may have another value in its place.
                            self._leaf(path.replace("global:self.", "value:").replace("__class__.", ""))
                        self.by_class |= isinstance(value, classmethod)
                        root = first and path == "global:self.__class__.forward"
                        self._function("global:" if root else f"{path}.", function)
                elif (
                    not (library or self.library)
                    and not key.startswith("__")
                    and self.read(key)
                    and _is_value(value)
                ):
                    on_instance = name.startswith("global:self.") and self._on_instance(f"{name}.{key}")
                    if self.by_class or not on_instance:
                        self._value(path, value)

    def _on_instance(self, name: str) -> bool:
        """Whether a value of a class is pinned already, as its instances have it."""
        path = name.removeprefix("global:self.").replace("__class__.", "")
        return path in self.known or f"value:{path}" in self.found

    def _runs(self, name: str) -> bool:
        special = name.startswith("__") and name.endswith("__")
        if special:
            return name not in _NEVER_RUN or name in self.names
        return self.read(name) or name in _ALWAYS_RUN

    def _function(self, prefix: str, function: Any) -> None:
        """Takes the names in a function's code, and pins what its closure, globals and defaults are."""
        key = (id(function), prefix)
        if (
            not isinstance(function, types.FunctionType)
            or id(function) in self._outer
            or key in self._visited
        ):
            return
        self._visited.add(key)
        self._outer.append(id(function))
        self._inside(prefix, function)
        self._outer.pop()

    def _inside(self, prefix: str, function: types.FunctionType) -> None:
        module = function.__globals__.get("__name__") or ""
        held = {key: cell.cell_contents for key, cell in pins.cells(function).items()}
        if pins.is_library(module, "") and not self.library:
            for key, value in held.items():  # a wrapper of a library around a function of the user's
                self._function(f"{prefix}{key}.", pins.function_of(value))
                if type(value) in (bool, int, float, str, list, tuple, dict):
                    self._value(f"{prefix}{key}", value)
            return
        self._code(function.__code__)
        if pins.is_library(module, ""):
            return  # the values of an installed package belong to its version
        for key, value in held.items():
            if value is getattr(function, "__wrapped__", None):
                self._function(f"{prefix}{key}.", pins.function_of(value))
            elif not (isinstance(value, type) and value in type(self.module).__mro__):
                self._named(f"{prefix}{key}", key, value, None)
        for key, value in pins.defaults(function).items():
            if not _is_literal_default(function.__code__, key):
                self._value(f"{prefix}({key})", value)
        if imported := pins.imports(function):
            self._code_in(imported)
            self._leaf(f"{prefix}(imports)")
        read = pins.reads_of(function.__code__)
        modules = "sys" in read.globals and "modules" in read.names
        if _OUTSIDE & read.names or _OUTSIDE_GLOBALS & {*read.globals} or modules:
            text = "reads the environment, a file or the names of another module, or runs code from text"
            raise _Refused(f"`{function.__qualname__}` {text}, which cannot be compared")
        for key, value in vars(function).items():
            if self.read(key) and not key.startswith("__"):
                self._value(f"{prefix}{key}", value)
        for key in read.globals:
            if key in function.__globals__:
                self._named(f"{prefix}{key}", key, function.__globals__[key], function.__globals__)

    def _named(self, name: str, key: str, value: Any, space: dict[str, Any] | None) -> None:
        """Pins what a name stands for, unless its definition in the source says it all; follows code."""
        function = pins.function_of(value)
        code = isinstance(function, types.FunctionType | types.BuiltinFunctionType | type | types.ModuleType)
        if code and not self._is_defined(key, value, space):
            self._leaf(name, value)
        if isinstance(function, types.FunctionType):
            self._function(f"{name}.", function)
        elif isinstance(value, type):
            self._class(name, value)
        elif isinstance(value, types.ModuleType):
            self._of_module(name, value)
        elif not code:
            self._value(name, value)

    def _of_module(self, name: str, value: types.ModuleType) -> None:
        if pins.is_library(value.__name__, "") or (id(value), name) in self._visited:
            return
        self._visited.add((id(value), name))
        for key in sorted(self.names & vars(value).keys()):
            if not key.startswith("__"):
                self._named(f"{name}.{key}", key, vars(value)[key], vars(value))

    def _is_defined(self, key: str, value: Any, space: dict[str, Any] | None) -> bool:
        """Whether one definition or import in the source determines a function, class or module of this name."""
        file = (space or {}).get("__file__")
        bindings = _bindings(file).get(key) if file else None
        if bindings is None:
            return space is not None and (
                isinstance(value, types.ModuleType) or getattr(value, "__name__", "") == key
            )
        if bindings.imports:
            return len(bindings.imports) == 1 and not bindings.nodes
        return len(bindings.nodes) == 1 and isinstance(bindings.nodes[0], ast.FunctionDef | ast.ClassDef)

    def _code(self, code: types.CodeType) -> None:
        """Takes the names in a code object."""
        if code in self._codes:
            return
        self._codes.add(code)
        read = pins.reads_of(code)
        self.names |= read.names
        if "site-packages" in code.co_filename:
            return
        if read.names & _WHOLE:
            self.everything = True
        if "type" in read.globals or "__class__" in read.names:
            self.by_class = True
        if read.names & {*_BY_NAME}:
            asked = _asked(code)
            self.everything |= asked is None
            self.asked |= read.strings if asked is None else asked
        self.asked |= _read_of_self(code)

    def _code_in(self, value: Any) -> None:
        """Takes the names in the code that a value holds, at any depth. Its text holds all else."""
        function = pins.function_of(value)
        if (
            (id(value), "") in self._visited
            or value is None
            or isinstance(value, str | int | float | torch.Tensor)
        ):
            return
        self._visited.add((id(value), ""))
        self._keep.append(value)
        inner: list[Any] = []
        if isinstance(function, types.FunctionType):
            inner = [cell.cell_contents for cell in pins.cells(function).values()]
            inner += [getattr(value, "__self__", None)]
            if not pins.is_library(function.__globals__.get("__name__") or "", ""):
                self._code(function.__code__)
                used = pins.reads_of(function.__code__).globals
                inner += [function.__globals__[key] for key in used if key in function.__globals__]
        elif isinstance(value, functools.partial):
            inner = [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, Mapping):
            inner = [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            inner = list(value)
        elif isinstance(value, type):
            if not pins.is_library(value.__module__, ""):
                inner = [
                    each for key, each in vars(value).items() if key not in _NEVER_RUN and _is_code(each)
                ]
        elif not isinstance(value, types.ModuleType) and value is not self.module:
            inner = [type(value), *pins.state_of(value).values()]
        for each in inner:
            self._code_in(each)

    @functools.cached_property
    def _keep(self) -> list[Any]:
        """Objects that were looked into, kept so that no other object gets the ``id`` of one."""
        return []


_CALLABLES = (types.BuiltinFunctionType, functools.partial, functools._lru_cache_wrapper)


def _held(part: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yields a module's own attributes, without what ``nn.Module`` itself keeps."""
    for name, value in pins.state_of(part).items():
        if name not in _INTERNAL:
            yield name, value


def _is_fixed(tensor: torch.Tensor) -> bool:
    """Whether the judge leaves a parameter or buffer at its value, because its dtype is no floating one."""
    return not tensor.is_floating_point()


def _is_torch(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("torch", "builtins")


def _is_opaque(value: Any) -> bool:
    """Whether an object of a library is pinned as a whole."""
    return pins.is_basic(type(value).__module__) and not isinstance(value, types.SimpleNamespace | Namespace)


def _is_value(value: Any) -> bool:
    return not isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)


def _is_generated(function: Any) -> bool:
    """Whether a method was generated, as those of dataclasses are; it counts where it ran."""
    return isinstance(function, types.FunctionType) and function.__code__.co_filename == "<string>"


def _is_code(value: Any) -> bool:
    return isinstance(value, _FUNCTIONS)


def _as_code(name: str) -> str:
    """The name by which code of ``forward`` reaches what a pin names."""
    return name.replace("value:", "global:self.", 1)


def _shown(name: str) -> str:
    kind, _, path = name.partition(":")
    return f"`self.{path}`" if kind == "value" else f"`{path}`, which forward reads,"


@functools.lru_cache(maxsize=64)
def _bindings(file: str) -> dict[str, Bindings]:
    """What binds each name at the top of a file; empty if it cannot be read."""
    try:
        return module_names(ast.parse(Path(file).read_bytes()))[0]
    except (OSError, SyntaxError, ValueError):
        return {}


@functools.lru_cache(maxsize=1024)
def _tree(code: types.CodeType) -> ast.AST | None:
    """The syntax tree of a code object; None without a source."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None


def _asked(code: types.CodeType) -> set[str] | None:
    """The names with which code calls ``getattr`` and ``hasattr``; None if they are computed."""
    tree = _tree(code)
    if tree is None:
        return None
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    asked = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in _BY_NAME]
    mentioned = sum(isinstance(n, ast.Name) and n.id in _BY_NAME for n in ast.walk(tree))
    names = [
        call.args[1].value for call in asked if len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
    ]
    if len(names) != mentioned:
        return None
    return {name for name in names if isinstance(name, str)}


def _read_of_self(code: types.CodeType) -> set[str]:
    """The attributes that a method reads of ``self`` where it may have none, inside ``try``."""
    tree = _tree(code)
    tries = [n for n in ast.walk(tree) if isinstance(n, ast.Try)] if tree and code.co_argcount else []
    return {
        node.attr
        for each in tries
        for statement in each.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id == code.co_varnames[0]
    }


def _is_literal_default(code: types.CodeType, name: str) -> bool:
    """Whether the source gives a parameter a constant as its default."""
    tree = _tree(code)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda)] if tree else []
    for function in functions[:1]:
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        given = dict(zip(reversed([a.arg for a in positional]), reversed(arguments.defaults), strict=False))
        given |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d}
        default = given.get(name)
        default = default.operand if isinstance(default, ast.UnaryOp) else default
        return isinstance(default, ast.Constant)
    return False
