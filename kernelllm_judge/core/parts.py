"""How Python code reaches the parts of a module: from dotted names to expressions, and back.

``named_parameters()`` calls a weight ``net.0.weight``. Python reaches it as ``self.net[0].weight``, and an entry of an
``nn.ModuleDict`` as ``self.blocks['down-1']``. Records and ``SUPPORTS`` hold dotted names; kernel modules hold expressions.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

_BY_NAME = ("get_submodule", "get_parameter", "get_buffer")
"""Methods of ``nn.Module`` that reach a part whose name no attribute access can spell."""


@dataclass(frozen=True)
class Container:
    """A module whose parts are reached by subscript."""

    kind: Literal["list", "dict"]
    names: tuple[str, ...]
    """Names of its parts, in order."""


def container(module: nn.Module) -> Container | None:
    """What a module's subscripts reach; None where it has none, or has a ``__getitem__`` of its own."""
    found = getattr(type(module), "__getitem__", None)
    if found is nn.Sequential.__getitem__:
        return Container("list", tuple(module._modules))
    if found is nn.ModuleDict.__getitem__:
        return Container("dict", tuple(module._modules))
    if isinstance(module, nn.ParameterDict) and found is nn.ParameterDict.__getitem__:
        return Container("dict", tuple(module.keys()))
    if found is nn.ModuleList.__getitem__ or found is nn.ParameterList.__getitem__:
        assert isinstance(module, nn.ModuleList | nn.ParameterList)
        return Container("list", tuple(str(index) for index in range(len(module))))
    return None


@dataclass(frozen=True)
class Parts:
    """The expressions for the parts of one module. Made by ``parts_of``."""

    containers: Mapping[str, Container] = field(default_factory=dict)
    """Containers by dotted name; the module itself is ``""``."""
    odd: Mapping[str, str] = field(default_factory=dict)
    """Expressions by dotted name, for parts that neither an attribute nor a subscript reaches."""

    def expression(self, name: str) -> str | None:
        """The expression over ``self`` for a dotted name; None where Python has none.

        >>> Parts({"net": Container("list", ("0", "1"))}).expression("net.1.weight")
        'self.net[1].weight'
        """
        if not name:
            return "self"
        if name in self.odd:
            return self.odd[name]
        owner, _, last = name.rpartition(".")
        base = self.expression(owner)
        held = self.containers.get(owner)
        if base is None or held is None or last not in held.names:
            return f"{base}.{last}" if base is not None and _is_plain(last.partition("[")[0]) else None
        if held.kind == "dict":
            return f"{base}[{last!r}]"
        return f"{base}.{last}" if _is_plain(last) else f"{base}[{held.names.index(last)}]"

    def name(self, node: ast.expr, of_self: str = "") -> str | None:
        """The dotted name of what an expression over ``self`` reaches; None for any other expression.

        Args:
            node: ``self.net[0].weight``, ``self.net[-1]``, ``self.blocks["up"]``, ``self.get_submodule("net.0")``.
            of_self: the dotted name of what ``self`` stands for.
        """
        match node:
            case ast.Name(id="self"):
                return of_self
            case ast.Attribute(value=value, attr=last):
                owner = self.name(value, of_self)
                return None if owner is None else _joined(owner, last)
            case ast.Subscript(value=value, slice=index):
                owner = self.name(value, of_self)
                item = None if owner is None else self._item(owner, index)
                return None if owner is None or item is None else _joined(owner, item)
            case ast.Call(func=ast.Attribute(value=value, attr=method), args=[ast.Constant(value=str(path))]):
                owner = self.name(value, of_self) if method in _BY_NAME else None
                return None if owner is None else _joined(owner, path)
        return None

    def _item(self, owner: str, index: ast.expr) -> str | None:
        """The name of the part of a container that a literal subscript reaches."""
        held = self.containers.get(owner)
        try:
            key = ast.literal_eval(index)
        except ValueError:
            return None
        if held is None:
            return None
        if held.kind == "dict":
            return key if key in held.names else None
        inside = type(key) is int and -len(held.names) <= key < len(held.names)
        return held.names[key] if inside else None


def parts_of(module: nn.Module) -> Parts:
    """The expressions for the parts of a module as it is now."""
    containers = {}
    odd: dict[str, str] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        if (held := container(part)) is not None:
            containers[path] = held
            continue
        for method, parts in zip(_BY_NAME, (part._modules, part._parameters, part._buffers), strict=True):
            names = (_joined(path, name) for name in parts if not _is_plain(name))
            odd |= {name: f"self.{method}({name!r})" for name in names}
    return Parts(containers, odd)


def merged(several: Iterable[Parts]) -> Parts:
    """The expressions for the parts of any of several modules of one class; of a list, the longest counts."""
    containers: dict[str, Container] = {}
    odd: dict[str, str] = {}
    for parts in several:
        odd |= parts.odd
        for path, held in parts.containers.items():
            containers[path] = max(containers.get(path, held), held, key=lambda each: len(each.names))
    return Parts(containers, odd)


def _is_plain(name: str) -> bool:
    """Whether a name can stand behind a dot. Python reads other letters than ASCII's as their normal forms."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def _joined(owner: str, last: str) -> str:
    return f"{owner}.{last}" if owner else last
