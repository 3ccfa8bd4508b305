"""Pins: texts that are equal only if two values are, for everything that a ``forward`` reads besides tensors and scalars.

A domain holds pins among its attributes, under names that no attribute can have:

- ``value:config.scale``: what an attribute of the module is, however it is built up;
- ``global:SCALE``: what a name is in the code of ``forward``. Each further part of the name is looked up in the value
  before it; in a function that is what its own code would find: ``global:helper.SCALE``, ``global:self.norm.SCALE``;
- ``same:head.weight``: the name of an earlier parameter or buffer that is the same object.
"""

from __future__ import annotations

import ast
import builtins
import copyreg
import dis
import enum
import functools
import hashlib
import importlib.util
import inspect
import logging
import sys
import textwrap
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

_ORIGINAL = "__kernelllm_original__"
_LONGEST = 80
"""Characters of the longest text that is kept; of others the digest is."""
_LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "triton", "numpy", __name__.partition(".")[0], ""})
_ATOMS = (bool, int, str, bytes, type(None), type(Ellipsis), type(NotImplemented), complex, range, slice)
_BY_REPR = (
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
    torch.finfo,
    torch.iinfo,
)
_ITEMS = (list, tuple, dict, set, frozenset, str, bytes, int, float, complex)
_HOOKS = ("_hooks", "_pre_hooks", "_with_kwargs", "_always_called")


class MISSING:
    """Stands for what does not exist. It is a class because Dynamo before torch 2.13 cannot compare objects."""


class Unpinnable(Exception):
    """A value cannot be compared; the text says what it is, as the end of a sentence."""


def pinned(module: nn.Module, name: str) -> str:
    """Returns the present text of a pin of a module.

    Args:
        module: the module that is called.
        name: ``value:…`` or ``global:…``.

    Raises:
        Unpinnable: the value cannot be compared.
    """
    value = found(module, name)
    return qualified(value) if name.endswith(".__class__") else text_of(value, module)


def found(module: nn.Module, name: str) -> Any:
    """Returns what a pin's name reaches; ``MISSING`` if it does not exist."""
    value: Any = start(module, name)
    for step in steps(name):
        value = module if value is SCOPE and step == "self" else member(value, step, module)
    return value


def ties(module: nn.Module) -> dict[str, str]:
    """Returns ``same:NAME``, with the first name of the same parameter or buffer, for each further name of one."""
    named = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    first: dict[int, str] = {}
    for name, tensor in named:
        first.setdefault(id(tensor), name)
    return {f"same:{name}": first[id(tensor)] for name, tensor in named if first[id(tensor)] != name}


class SCOPE:
    """Stands for the names that the code of ``forward`` sees."""


def start(module: nn.Module, name: str) -> Any:
    """Returns the object in which the first step of a pin's name is looked up."""
    return module if name.startswith("value:") else SCOPE


def steps(name: str) -> list[str]:
    """Returns the parts of a pin's name."""
    return name.partition(":")[2].split(".")


def top_of(module: nn.Module) -> str:
    """Returns the top-level package of a module's class."""
    return type(module).__module__.partition(".")[0]


def member(owner: Any, step: str, module: nn.Module) -> Any:
    """Returns what one step of a pin's name reaches; ``MISSING`` if it does not exist.

    Args:
        owner: any object. In a function, names are those of its closure and globals, ``(name)`` is the default of a
            parameter, and ``(imports)`` is what its code imports while it runs. In a class, ``<Base>`` is a base.
        step: one part of a pin's name.
        module: the module that is called.
    """
    owner = function_of(type(module).forward if owner is SCOPE else owner)
    if isinstance(owner, types.FunctionType):
        found = _in_function(owner, step)
        return getattr(owner, step, MISSING) if found is MISSING else found
    if isinstance(owner, type) and step.startswith("<"):
        return next((base for base in owner.__mro__ if f"<{base.__name__}>" == step), MISSING)
    try:
        return getattr(owner, step, MISSING)
    except Exception:  # code that computes it
        return MISSING


def function_of(value: Any) -> Any:
    """Returns the plain function behind a method, a property or an adopted ``forward``; other values as they are."""
    if isinstance(value, types.MethodType | staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property | functools.cached_property):
        value = value.fget if isinstance(value, property) else value.func
    value = getattr(value, "_torchdynamo_orig_callable", value) if callable(value) else value
    if isinstance(value, functools._lru_cache_wrapper):
        value = value.__wrapped__
    return getattr(value, _ORIGINAL, value) if isinstance(value, types.FunctionType) else value


def cells(function: types.FunctionType) -> dict[str, Any]:
    """Returns the cells of a function's closure by name; cells that are still empty are left out."""
    found = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell for name, cell in found if _contents(cell) is not MISSING}


def defaults(function: types.FunctionType) -> dict[str, Any]:
    """Returns the defaults of a function's parameters by name."""
    code = function.__code__
    given = function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(given) :]
    return {**dict(zip(names, given, strict=True)), **(function.__kwdefaults__ or {})}


def imports(function: types.FunctionType) -> dict[str, Any]:
    """Returns what a function's code imports from modules outside the libraries while it runs, by full name."""
    package = function.__globals__.get("__package__") or ""
    found: dict[str, Any] = {}
    for level, name, taken in reads_of(function.__code__).imports:
        try:
            full = importlib.util.resolve_name("." * level + name, package) if level else name
        except ImportError:
            continue
        if is_library(full, ""):
            continue
        module = sys.modules.get(full)
        names = taken or sorted(reads_of(function.__code__).names & vars(module).keys() if module else ())
        found |= {f"{full}.{each}": getattr(module, each, MISSING) for each in names}
    return {name: value for name, value in found.items() if not isinstance(value, types.ModuleType)}


def _in_function(function: types.FunctionType, step: str) -> Any:
    if step == "(imports)":
        return imports(function)
    if step.startswith("("):
        return defaults(function).get(step[1:-1], MISSING)
    cell = cells(function).get(step)
    if cell is not None:
        return cell.cell_contents
    return function.__globals__.get(step, getattr(builtins, step, MISSING))


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


# --------------------------------------------------------------------------- what code reads


@dataclass(frozen=True)
class Reads:
    """What a function's code mentions, with the code nested in it."""

    names: frozenset[str]
    """Every attribute, method and global."""
    strings: frozenset[str]
    """String constants that may be names, also the parts of dotted ones."""
    globals: tuple[str, ...]
    imports: tuple[tuple[int, str, tuple[str, ...]], ...]
    """Level, module and names of every import."""


@functools.lru_cache(maxsize=4096)
def reads_of(code: types.CodeType) -> Reads:
    """Returns what a code object mentions."""
    names, strings, found = set(code.co_names), set[str](), dict[str, None]()
    imported: list[tuple[int, str, tuple[str, ...]]] = []
    instructions = list(dis.get_instructions(code))
    for index, each in enumerate(instructions):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            found[each.argval] = None
        elif each.opname == "IMPORT_NAME":
            level, taken = instructions[index - 2].argval, instructions[index - 1].argval
            imported.append((level, each.argval, tuple(taken or ())))
        elif each.opname == "MATCH_CLASS":  # which may read any attribute
            names.add("__dict__")
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = reads_of(constant)
            names |= inner.names
            strings |= inner.strings
            found |= dict.fromkeys(inner.globals)
            imported += inner.imports
        for item in constant if isinstance(constant, tuple | frozenset) else (constant,):
            if isinstance(item, str):
                strings |= {part for part in item.split(".") if part.isidentifier()}
    return Reads(frozenset(names), frozenset(strings), tuple(found), tuple(imported))


def is_library(module: str, own: str) -> bool:
    """Whether a module's code is taken as it is: the standard library's, torch's, and other installed packages'.

    Args:
        module: its dotted name.
        own: a top-level package that is the user's, wherever it is installed.
    """
    top = module.partition(".")[0]
    return top in _LIBRARIES or (top != own and _installed(top))


def is_basic(module: str) -> bool:
    """Whether a module is one of the standard library, torch, Triton or NumPy."""
    return module.partition(".")[0] in _LIBRARIES


def _installed(top: str) -> bool:
    module = sys.modules.get(top)
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return "site-packages" in file or "dist-packages" in file


# --------------------------------------------------------------------------- texts


def text_of(value: Any, module: nn.Module) -> str:
    """Returns a text for a value that tells types apart; a long one is shortened to a digest.

    Containers, objects, functions and modules are written with everything that they hold, functions also with the
    globals that their code reads. Tensors are written by dtype, shape and values; their device does not matter. Parts
    of the module itself are written by their names.

    Args:
        value: any value.
        module: the module that is called.

    Raises:
        Unpinnable: the value, or one inside it, cannot be compared.
    """
    return _Writer(module, _tensor).shown(value)


class Unchanged:
    """Whether a value is still what it was. Tensors are compared by identity and version, not by their contents."""

    def __init__(self, value: Any, module: nn.Module) -> None:
        """Takes the value as it is now; neither the module nor tensors are kept alive."""
        self._module = weakref.ref(module)
        self._text, tensors = self._written(value)
        self._tensors = [(weakref.ref(each), self._state(each)) for each in tensors]

    def __call__(self, value: Any) -> bool:
        """Returns whether ``value`` is equal to the first one, with the same tensors in it."""
        text, tensors = self._written(value)
        return text == self._text and all(
            then() is now and state == self._state(now)
            for now, (then, state) in zip(tensors, self._tensors, strict=True)
        )

    def _written(self, value: Any) -> tuple[str, list[torch.Tensor]]:
        tensors: list[torch.Tensor] = []

        def number(tensor: torch.Tensor) -> str:
            _refuse_gradients(tensor)
            tensors.append(tensor)
            return f"tensor {len(tensors)}"

        module = self._module()
        assert module is not None  # it is being called
        return _Writer(module, number).shown(value), tensors

    @staticmethod
    def _state(tensor: torch.Tensor) -> tuple[Any, ...]:
        version = _tensor(tensor) if tensor.is_inference() else tensor._version
        return tensor.data_ptr(), version, tensor.shape, tensor.stride(), tensor.dtype


def settled(value: Any) -> bool:
    """Whether a value cannot change as long as it is the same object."""
    if type(value) is tuple:
        return all(map(settled, value))
    if isinstance(value, types.BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, types.ModuleType | type)
    if isinstance(value, types.FunctionType):
        return is_basic(value.__globals__.get("__name__") or "") and not value.__closure__
    return type(value) in (*_ATOMS, float, *_BY_REPR) or isinstance(value, enum.Enum) or value is MISSING


class _Writer:
    def __init__(self, module: nn.Module, tensor: Callable[[torch.Tensor], str]) -> None:
        self._module, self._own, self._tensor = module, top_of(module), tensor
        self._outer: dict[int, int] = {}
        """How deep each value that is being written lies, by its ``id``."""
        self._written: dict[int, tuple[Any, str]] = {}

    def shown(self, value: Any) -> str:
        kind = type(value)
        if kind in _ATOMS:
            text = repr(value)
        elif kind is float:
            text = repr(value) if value - value == 0 else f"float({str(value)!r})"
        else:
            text = self._once(value)
        if len(text) <= _LONGEST and text.isprintable():
            return text
        return f"{kind.__name__} {hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:32]}"

    def _once(self, value: Any) -> str:
        number = id(value)
        if number in self._outer:
            return f"<{len(self._outer) - self._outer[number]} up>"
        if number not in self._written:
            self._outer[number] = len(self._outer)
            # Kept with the value, so that no other gets its id.
            self._written[number] = value, self._value(value)
            del self._outer[number]
        return self._written[number][1]

    @functools.cached_property
    def _parts(self) -> dict[int, str]:
        """The names of the module's own parts, by their ``id``; those of buffers whose values are pinned are left out."""
        named = (self._module.named_parameters, self._module.named_buffers)
        tensors = {id(t): f"self.{name}" for each in named for name, t in each() if t.is_floating_point()}
        return tensors | {id(part): f"self.{path}" for path, part in self._module.named_modules()}

    def _value(self, value: Any) -> str:
        kind = type(value)
        if value is MISSING:
            return "missing"
        if isinstance(value, torch.Tensor | nn.Module) and id(value) in self._parts:
            return self._parts[id(value)]
        if isinstance(value, torch.Tensor):
            return f"{kind.__name__} {self._tensor(value)}"
        if isinstance(value, _BY_REPR):
            return repr(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, enum.Enum):
            return f"{qualified(kind)}.{value._name_}={self.shown(value._value_)}"
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__}"
        if isinstance(value, logging.Logger):  # what it writes is no result
            return "a logger"
        if kind.__module__ == "numpy":
            return _numpy(value)
        if kind in (list, tuple, dict, set, frozenset, types.MappingProxyType):
            return self._items(value)
        if (text := self._callable(value)) is not None:
            return text
        return self._object(value)

    def _items(self, value: Any) -> str:
        if isinstance(value, Mapping):
            return "{" + "".join(f"{self.shown(k)}: {self.shown(v)}, " for k, v in value.items()) + "}"
        if isinstance(value, set | frozenset):
            return f"{type(value).__name__}({', '.join(sorted(map(self.shown, value)))})"
        opened, closed = "()" if isinstance(value, tuple) else "[]"
        return opened + "".join(f"{self.shown(item)}, " for item in value) + closed

    def _callable(self, value: Any) -> str | None:
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return f"method({self.shown(value.__func__)} of {self.shown(value.__self__)})"
        if isinstance(value, functools.partial):
            return (
                f"partial({self.shown(value.func)}, {self.shown(value.args)}, {self.shown(value.keywords)})"
            )
        if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            owner = value.__self__
            bound = owner is not None and not isinstance(owner, types.ModuleType | type)
            return qualified(value) + (f" of {self.shown(owner)}" if bound else "")
        if isinstance(
            value,
            property | functools.cached_property | staticmethod | classmethod | functools._lru_cache_wrapper,
        ):
            return f"{type(value).__name__}({self.shown(function_of(value))})"
        if isinstance(value, torch.jit.ScriptFunction):
            return f"script {value.qualified_name} {value.code}"
        if type(value).__module__.startswith(("torch._ops", "triton.")):
            return f"{qualified(type(value))} {getattr(value, '__module__', '')}.{getattr(value, '__name__', value)}"
        return None

    def _function(self, function: types.FunctionType) -> str:
        plain = function_of(function)
        if plain is not function:
            return self.shown(plain)
        code, name = function.__code__, qualified(function)
        if is_library(function.__globals__.get("__name__") or "", self._own):
            # A wrapper made by a library is known by what it wraps.
            inner = [cell.cell_contents for cell in cells(function).values()]
            wrapped = [self.shown(each) for each in inner if isinstance(each, types.FunctionType)]
            return f"{name}({', '.join(wrapped)})"
        name += f"@{_digest_of(code)}"  # several may have one name
        held = {key: cell.cell_contents for key, cell in cells(function).items()} | {
            f"({key})": value for key, value in defaults(function).items()
        }
        held |= {f".{key}": v for key, v in vars(function).items() if not key.startswith("__")}
        read = reads_of(code)
        for key in read.globals:
            if key in function.__globals__:
                held |= dict(self._global(key, function.__globals__[key], read.names, depth=3))
        if read.imports:
            held["(imports)"] = imports(function)
        return f"{name}({', '.join(f'{key}={self.shown(v)}' for key, v in held.items())})"

    def _global(self, name: str, value: Any, names: frozenset[str], depth: int) -> Iterator[tuple[str, Any]]:
        if not isinstance(value, types.ModuleType):
            yield name, value
        elif not is_library(value.__name__, self._own) and depth:
            for each in sorted(names & vars(value).keys()):
                yield from self._global(f"{name}.{each}", vars(value)[each], names, depth - 1)

    def _class(self, cls: type) -> str:
        name = qualified(cls)
        if is_library(cls.__module__ or "", self._own):
            return name
        held = {
            f"{base.__name__}.{key}": value
            for base in cls.__mro__
            if not is_library(base.__module__ or "", self._own)
            for key, value in vars(base).items()
            if not key.startswith("__") or isinstance(value, types.FunctionType)
            if key != "_abc_impl" and not _is_descriptor(value)
        }
        return f"{name}({', '.join(f'{key}={self.shown(v)}' for key, v in held.items())})"

    def _object(self, value: Any) -> str:
        parts = {"class": type(value)} | {f".{name}": each for name, each in state_of(value).items()}
        if not isinstance(value, nn.Module):
            maker, arguments, state, items, pairs = _reduced(value)
            parts |= {"maker": maker, "arguments": arguments, "items": items, "pairs": pairs}
            if not is_plain_object(value):
                parts["state"] = state
        return f"{qualified(type(value))}({', '.join(f'{k}={self.shown(v)}' for k, v in parts.items())})"


def is_plain_object(value: Any) -> bool:
    """Whether all of an object's state is in its attributes, so that each can be pinned apart from the others."""
    kind = type(value)
    if isinstance(value, (*_ITEMS, type, torch.Tensor, nn.Module, enum.Enum)) or kind is object:
        return False
    given = [getattr(kind, name) is not getattr(object, name) for name in ("__reduce__", "__reduce_ex__")]
    if any(given) and kind is not types.SimpleNamespace:
        return False
    return hasattr(value, "__dict__") or any("__slots__" in vars(base) for base in kind.__mro__)


def state_of(value: Any) -> dict[str, Any]:
    """Returns an object's own attributes, without a module's empty hooks."""
    found = dict(getattr(value, "__dict__", None) or {})
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            mangled = (
                f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and name[-2:] != "__" else name
            )
            if (
                name not in ("__dict__", "__weakref__")
                and (each := getattr(value, mangled, MISSING)) is not MISSING
            ):
                found[mangled] = each
    if isinstance(value, nn.Module):
        found = {k: v for k, v in found.items() if not k.endswith(_HOOKS) or v}
    return found


def _reduced(value: Any) -> tuple[Any, ...]:
    """What ``copy`` and ``pickle`` would make the value from: five parts."""
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        parts = reduce(value) if reduce else value.__reduce_ex__(2)
        if type(value) is object or isinstance(parts, str):
            raise TypeError
    except Exception:
        raise Unpinnable(f"is {_a(type(value).__name__)}, whose value cannot be compared") from None
    maker, arguments, state, items, pairs = (*parts, None, None, None)[:5]
    return maker, arguments, state, list(items or ()), list(pairs or ())


def _tensor(value: torch.Tensor) -> str:
    _refuse_gradients(value)
    name = f"{value.dtype} {tuple(value.shape)}"
    if value.is_meta or value.is_quantized or value.layout is not torch.strided or value.is_nested:
        raise Unpinnable("is a tensor whose elements cannot be compared")
    if value.is_cuda and torch.cuda.is_current_stream_capturing():
        raise Unpinnable("is a tensor that cannot be read while a CUDA graph is recorded")
    with torch.no_grad():
        flat = value.detach().to("cpu").resolve_conj().resolve_neg().contiguous().view(-1)
        content: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return f"{name} {hashlib.sha256(content).hexdigest()[:32]}"


def _refuse_gradients(value: torch.Tensor) -> None:
    if value.requires_grad and torch.is_grad_enabled():
        raise Unpinnable("is a tensor that requires gradients and is no parameter of the module")


def _numpy(value: Any) -> str:
    if not hasattr(value, "tobytes"):
        return f"numpy {value!r}"
    if value.dtype.hasobject:
        raise Unpinnable("is a NumPy array of objects, whose value cannot be compared")
    name = f"numpy.{type(value).__name__} {value.dtype.str} {value.shape}"
    return (
        f"{name} {value.item()!r}"
        if not value.shape
        else f"{name} {hashlib.sha256(value.tobytes()).hexdigest()}"
    )


@functools.lru_cache(maxsize=4096)
def _digest_of(code: types.CodeType) -> str:
    """A digest of a function's code: of its source where that is certain, else of what Python made from it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        tree = ast.Module([], [])
    kinds = ast.Lambda if code.co_name == "<lambda>" else ast.FunctionDef
    found = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    if found and (kinds is ast.FunctionDef or len(found) == 1):
        return hashlib.sha256(ast.unparse(found[0]).encode()).hexdigest()[:16]
    return hashlib.sha256(code.co_code + repr(_constants(code)).encode()).hexdigest()[:16]


def _constants(code: types.CodeType) -> list[Any]:
    nested = [
        (each.co_code.hex(), _constants(each))
        if isinstance(each, types.CodeType)
        else (type(each).__name__, each)
        for each in code.co_consts
    ]
    return [*nested, code.co_names, code.co_varnames]


def _is_descriptor(value: Any) -> bool:
    return isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)


def qualified(thing: Any) -> str:
    """Returns the dotted name of a class or function, ``torch.…`` for those of torch that have no module."""
    return f"{getattr(thing, '__module__', None) or 'torch'}.{getattr(thing, '__qualname__', type(thing).__name__)}"


def _a(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
