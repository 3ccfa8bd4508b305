"""Detects cheaply that a module has changed since it was checked, by conditions generated for that module."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kernelllm_runtime.ambient import HOOKS, QUIET, QUIET_NAMES
from kernelllm_runtime.domain import ORDERED, PLAIN, SCALARS, hooks, same_value, split_item
from kernelllm_runtime.generated import define, holding
from kernelllm_runtime.pins.functions import cells, function_of
from kernelllm_runtime.pins.names import SCOPE, member, names_class, order_of, start, steps
from kernelllm_runtime.pins.objects import MISSING
from kernelllm_runtime.pins.settings import PREFIX, reader
from kernelllm_runtime.pins.unchanged import Unchanged, settled
from kernelllm_runtime.targets import is_pin


@dataclass(frozen=True)
class Watch:
    """What a domain check reads of one module, as Python expressions over ``module`` and ``names``.

    It keeps neither the module nor its tensors alive.
    """

    conditions: tuple[str, ...]
    """True as long as the module is unchanged and ``ambient_reason`` rules out no kernel."""
    tensors: tuple[str, ...]
    """The module's tensors, each once: parameters, buffers, others. Their properties are not checked here."""
    names: Mapping[str, Any]

    @functools.cached_property
    def unchanged(self) -> Callable[[nn.Module], tuple[torch.Tensor, ...] | None]:
        """Returns the module's present tensors; None if a condition is false."""
        tensors = "".join(f"{each}, " for each in self.tensors)
        text = holding("unchanged", ("module",), self.conditions, f"({tensors})", "None")
        return define("unchanged", text, self.names)


def watch(module: nn.Module, paths: Iterable[str]) -> Watch:
    """Generates the conditions that detect changes of a module.

    Args:
        paths: the dotted names whose values matter, as in ``Domain.attributes``.
    """
    seen = _Seen(module)
    for child in module.modules():
        seen.structure(child)
    for path in paths:
        if is_pin(path):
            seen.pin(path)
        else:
            seen.path(path)
    return seen.watch()


class _Seen:
    """Collects the state of a module for a ``Watch``."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.values: dict[str, Any] = dict(QUIET_NAMES)
        self._names = {id(module): "module"}  # a parameter of the function, so that it is not kept alive
        self._conditions: dict[str, None] = {}
        self._empty: list[Sized] = list(HOOKS)
        self._tensors: dict[int, tuple[str, torch.Tensor]] = {}

    def structure(self, child: nn.Module) -> None:
        """Adds what matters of each module in any domain: class, mode, children, tensors, hooks, new names."""
        own = self._name(vars(child))
        self._add(f"type({self._name(child)}) is {self._name(type(child))}")
        self._same(f"{own}['training']", child.training)
        self._add(f"len({own}) == {len(vars(child))}")
        for registry in (child._modules, child._parameters, child._buffers):
            self._length(registry)
            for name, value in registry.items():
                self._same(f"{self._name(registry)}[{name!r}]", value)
        if isinstance(child, ORDERED) and not all(name.isdigit() for name in child._modules):
            # Parts with numbers for names are numbered anew when their order changes; others only change places.
            self._add(f"[*{self._name(child._modules)}] == {[*child._modules]!r}")
        if child is not self.module:  # whose own hooks are called around forward, by torch
            for registered in hooks(child):
                self._length(registered)

    def path(self, path: str) -> None:
        """Adds the value of one dotted name, and everything on the way to it."""
        owner: Any = self.module
        for part in path.split("."):
            name, index = split_item(owner, part)
            value = getattr(owner, name, MISSING)
            expression = self._attribute(owner, name, value)
            if index is not None and isinstance(value, tuple | list):
                if index >= len(value):
                    self._add(f"len({expression}) == {len(value)}")
                    return
                expression, value = f"{expression}[{index}]", value[index]
                self._same(expression, value)
            if value is MISSING:
                return
            owner = value

    def pin(self, name: str) -> None:
        """Adds the value of one pin, and everything on the way to it."""
        if name.startswith("same:"):
            return  # both names are tensors of the domain, which ``structure`` compares with each other
        if name.startswith(PREFIX):
            read = reader(name)
            self._add(f"{self._name(read)}() == {read()!r}")
            return
        owner, expression, value = start(self.module, name), "", None
        for step in steps(name):
            value = self.module if owner is SCOPE and step == "self" else member(owner, step, self.module)
            if isinstance(owner, torch.Tensor):  # which is not kept alive
                expression = f"getattr({expression}, {step!r}, {self._name(MISSING)})"
                self._same(expression, value)
            elif value is not self.module:
                expression = self._member(owner, step, value)
            owner = value
        if name.startswith("order:"):
            self._add(f"{self._name(order_of)}({expression or 'module'}) == {order_of(owner)!r}")
        elif not settled(value) and not names_class(name):
            self._add(f"{self._name(Unchanged(value, self.module))}({expression})")

    def _member(self, owner: Any, step: str, value: Any) -> str:
        """Returns an expression for one step of a pin, and adds the condition that it is unchanged."""
        if owner is SCOPE:
            forward = type(self.module).forward
            self._add(f"type({self._name(self.module)}).forward is {self._name(forward)}")
            owner = forward
        function = function_of(owner)
        if not isinstance(function, types.FunctionType):
            return self._attribute(owner, step, value)
        if step in cells(function):
            expression = f"{self._name(cells(function)[step])}.cell_contents"
        elif step in function.__globals__:
            expression = f"{self._name(function.__globals__)}[{step!r}]"
        else:
            expression = f"{self._name(member)}({self._name(function)}, {step!r}, {self._name(self.module)})"
        if isinstance(value, torch.Tensor) or step == "(imports)":
            return expression  # which ``Unchanged`` compares
        self._same(expression, value)
        return expression

    def watch(self) -> Watch:
        """Returns the result."""
        nothing = " or ".join((*QUIET, *map(self._name, self._empty)))
        tensors = tuple(expression for expression, _ in self._tensors.values())
        return Watch((f"not ({nothing})", *self._conditions), tensors, self.values)

    def _attribute(self, owner: Any, name: str, value: Any) -> str:
        """Returns an expression for an attribute, and adds the condition that it is unchanged."""
        namespace = _namespace(owner, name, value)
        if value is MISSING:
            expression = f"getattr({self._name(owner)}, {name!r}, {self._name(MISSING)})"
        elif value is type(owner):
            expression = f"type({self._name(owner)})"
        elif namespace is not None:
            expression = f"{self._name(namespace)}[{name!r}]"
        else:
            expression = f"getattr({self._name(owner)}, {name!r})"
            if type(value) in SCALARS:  # code may compute it, each time as another object
                self._add(f"{self._name(same_value)}({self._name(value)}, {expression})")
                return expression
            if isinstance(value, types.MethodType):  # which is bound anew each time
                self._add(f"{expression}.__func__ is {self._name(value.__func__)}")
                return expression
        self._same(expression, value)
        return expression

    def _same(self, expression: str, value: Any) -> None:
        if not isinstance(value, torch.Tensor):
            literal = value is None or value is True or value is False
            self._add(f"{expression} is {value if literal else self._name(value)}")
        elif type(value) not in PLAIN:  # no domain accepts such a tensor
            self._add(f"type({expression}) is {self._name(type(value))}")
        else:
            first, _ = self._tensors.setdefault(id(value), (expression, value))
            if first != expression:
                self._add(f"{expression} is {first}")

    def _length(self, container: Sized) -> None:
        if container:
            self._add(f"len({self._name(container)}) == {len(container)}")
        else:
            self._empty.append(container)

    def _name(self, value: Any) -> str:
        name = self._names.setdefault(id(value), f"v{len(self._names)}")
        if value is not self.module:
            self.values[name] = value
        return name

    def _add(self, condition: str) -> None:
        self._conditions[condition] = None


def _namespace(owner: Any, name: str, value: Any) -> dict[str, Any] | None:
    """The dictionary that contains this attribute of ``owner``; None if its class or code provides it."""
    found: list[Any] = [getattr(owner, "__dict__", None)]
    if isinstance(owner, nn.Module):
        found += [owner._parameters, owner._buffers, owner._modules]
    holders = (each for each in found if isinstance(each, dict) and each.get(name, MISSING) is value)
    return next(holders, None)
