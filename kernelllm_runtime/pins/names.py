"""Pins: texts that are equal only if two values are, for everything that a ``forward`` reads besides tensors and scalars.

A domain holds pins among its attributes, under names that no attribute can have:

- ``value:config.scale``: what an attribute of the module is, however it is built up;
- ``global:SCALE``: what a name is in the code of ``forward``. Each further part of the name is looked up in the value
  before it; in a function that is what its own code would find: ``global:helper.SCALE``, ``global:self.norm.SCALE``;
- ``order:norm``: the names of all that a module or object holds, in their order; ``order:`` for the module itself;
- ``same:head.weight``: the name of an earlier parameter or buffer that is the same object;
- ``setting:torch.backends.cudnn.conv.fp32_precision``: one of PyTorch's settings, see ``settings``.
"""

from __future__ import annotations

import types
from typing import Any

from torch import nn

from kernelllm_runtime.pins.functions import function_of, in_function
from kernelllm_runtime.pins.objects import INTERNAL, MISSING, qualified, state_of
from kernelllm_runtime.pins.settings import PREFIX, setting
from kernelllm_runtime.pins.texts import text_of


class SCOPE:
    """Stands for the names that the code of ``forward`` sees."""


def pinned(module: nn.Module, name: str) -> str:
    """Returns the present text of a pin of a module.

    Raises:
        Unpinnable: the value cannot be compared.
    """
    if name.startswith(PREFIX):
        return setting(name)
    value = found(module, name)
    if name.startswith("order:"):
        return order_of(value)
    return qualified(value) if names_class(name) else text_of(value, module)


def names_class(name: str) -> bool:
    """Whether a pin says which class an object has, not what the class is made of."""
    return name.endswith((".__class__", ":__class__"))


def found(module: nn.Module, name: str) -> Any:
    """Returns what a pin's name reaches; ``MISSING`` if it does not exist."""
    value: Any = start(module, name)
    for step in steps(name):
        value = module if value is SCOPE and step == "self" else member(value, step, module)
    return value


def order_of(value: Any) -> str:
    """Returns the names of all that a module or another object holds, in their order."""
    names = [*state_of(value)]
    if isinstance(value, nn.ParameterDict):
        names = [*value.keys()]
    elif isinstance(value, nn.Module):
        names = [n for n in names if n not in INTERNAL]
        names += [name for each in (value._parameters, value._buffers, value._modules) for name in each]
    return " ".join(names)


def ties(module: nn.Module) -> dict[str, str]:
    """Returns ``same:NAME``, with the first name of the same part, parameter or buffer, for each further name of one."""
    named: tuple[tuple[str, Any], ...] = (
        *module.named_modules(remove_duplicate=False),
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    first: dict[int, str] = {}
    for name, part in named:
        first.setdefault(id(part), name)
    return {f"same:{name}": first[id(part)] for name, part in named if first[id(part)] != name}


def start(module: nn.Module, name: str) -> Any:
    """Returns the object in which the first step of a pin's name is looked up."""
    return SCOPE if name.startswith("global:") else module


def steps(name: str) -> list[str]:
    """Returns the parts of a pin's name."""
    path = name.partition(":")[2]
    return path.split(".") if path else []


def member(owner: Any, step: str, module: nn.Module) -> Any:
    """Returns what one step of a pin's name reaches; ``MISSING`` if it does not exist.

    Args:
        owner: any object. In a function, names are those of its closure and globals, ``(name)`` is the default of a
            parameter, and ``(imports)`` is what its code imports while it runs. In a class, ``<Base>`` is a base.
    """
    owner = function_of(type(module).forward if owner is SCOPE else owner)
    if isinstance(owner, types.FunctionType):
        found = in_function(owner, step)
        return getattr(owner, step, MISSING) if found is MISSING else found
    if isinstance(owner, type) and step.startswith("<"):
        return next((base for base in owner.__mro__ if f"<{base.__name__}>" == step), MISSING)
    try:
        return getattr(owner, step, MISSING)
    except Exception:  # code that computes it
        return MISSING
