"""Writes any value as a text that is equal only for equal values."""

from __future__ import annotations

import enum
import functools
import hashlib
import logging
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from kernelllm_runtime.pins.functions import (
    cells,
    defaults,
    digest_of,
    function_of,
    imports,
    is_library,
    reads_of,
)
from kernelllm_runtime.pins.objects import MISSING, Unpinnable, is_plain_object, qualified, reduced, state_of

_LONGEST = 80
"""Characters of the longest text that is kept; of others the digest is."""

ATOMS = (bool, int, str, bytes, type(None), type(Ellipsis), type(NotImplemented), complex, range, slice)

BY_REPR = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.finfo, torch.iinfo)


def text_of(value: Any, module: nn.Module) -> str:
    """Returns a text for a value that tells types apart; a long one is shortened to a digest.

    Containers, objects, functions and modules are written with everything that they hold, functions also with the
    globals that their code reads. Tensors are written by dtype, shape and values; their device does not matter. Parts
    of the module itself are written by their names.

    Raises:
        Unpinnable: the value, or one inside it, cannot be compared.
    """
    return Writer(module, tensor_text).shown(value)


class Writer:
    """Writes the texts of values."""

    def __init__(self, module: nn.Module, tensor: Callable[[torch.Tensor], str]) -> None:
        """``module`` is the one that is called; ``tensor`` returns the text of a tensor that is no part of it."""
        self._module, self._tensor = module, tensor
        self._own = type(module).__module__.partition(".")[0]
        self._outer: dict[int, int] = {}
        """How deep each value that is being written lies, by its ``id``."""
        self._written: dict[int, tuple[Any, str]] = {}

    def shown(self, value: Any) -> str:
        """Returns the text of a value.

        Raises:
            Unpinnable: the value, or one inside it, cannot be compared.
        """
        kind = type(value)
        if kind in ATOMS:
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
        if isinstance(value, BY_REPR):
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
        name += f"@{digest_of(code)}"  # several may have one name
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
            if key != "_abc_impl"
            and not isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)
        }
        return f"{name}({', '.join(f'{key}={self.shown(v)}' for key, v in held.items())})"

    def _object(self, value: Any) -> str:
        parts = {"class": type(value)} | {f".{name}": each for name, each in state_of(value).items()}
        if not isinstance(value, nn.Module):
            maker, arguments, state, items, pairs = reduced(value)
            parts |= {"maker": maker, "arguments": arguments, "items": items, "pairs": pairs}
            if not is_plain_object(value):
                parts["state"] = state
        return f"{qualified(type(value))}({', '.join(f'{k}={self.shown(v)}' for k, v in parts.items())})"


def tensor_text(value: torch.Tensor) -> str:
    """Returns dtype, shape and a digest of the values of a tensor.

    Raises:
        Unpinnable: its values cannot be compared.
    """
    refuse_gradients(value)
    name = f"{value.dtype} {tuple(value.shape)}" + (" requires_grad" if value.requires_grad else "")
    if value.is_meta or value.is_quantized or value.layout is not torch.strided or value.is_nested:
        raise Unpinnable("is a tensor whose elements cannot be compared")
    if value.is_cuda and torch.cuda.is_current_stream_capturing():
        raise Unpinnable("is a tensor that cannot be read while a CUDA graph is recorded")
    with torch.no_grad():
        flat = value.detach().to("cpu").resolve_conj().resolve_neg().contiguous().view(-1)
        content: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return f"{name} {hashlib.sha256(content).hexdigest()[:32]}"


def refuse_gradients(value: torch.Tensor) -> None:
    """Refuses a tensor that gradients would flow to.

    Raises:
        Unpinnable: it requires gradients, and they are enabled.
    """
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
