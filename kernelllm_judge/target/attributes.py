"""Collects what a module's behaviour depends on besides its inputs: parameters, buffers and plain values."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from kernelllm_judge.core.syntax import Chain, chain_of
from kernelllm_judge.core.targets import Scalar, TensorSpec

_SCALAR = (bool, int, float, str)


def is_scalar(value: Any) -> bool:
    """Whether a domain can record ``value`` as it is: None, a bool, number or string."""
    return value is None or type(value) in _SCALAR


def dtype_name(dtype: torch.dtype) -> str:
    """Returns ``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def attributes(module: nn.Module, dtype: str | None) -> dict[str, TensorSpec | Scalar]:
    """Returns the attributes that a domain records, by dotted name.

    Parameters and buffers become a ``TensorSpec``, scalars stay as they are, scalars in tuples become
    ``name[i]``, plain functions their qualified name, and each submodule adds its class as
    ``name.__class__``. Values that the class reads through other objects, such as ``config.hidden_act``, are
    included.

    Args:
        module: a built module.
        dtype: the floating dtype that parameters and buffers will be cast to, or None.
    """
    found: dict[str, TensorSpec | Scalar] = {}
    tensors = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    for name, tensor in tensors:
        cast = dtype if dtype and tensor.is_floating_point() else dtype_name(tensor.dtype)
        found[name] = TensorSpec(cast, tuple(tensor.shape))
    for path, part in module.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        if path:
            found[f"{prefix}__class__"] = _qualified(type(part))
        for name, value in _own(part):
            found.update(_pins(f"{prefix}{name}", value))
    for chain in sorted(_chains_read(type(module))):
        name = ".".join(chain)
        if name not in found:
            found.update(_pins(name, _follow(module, chain)))
    return found


def _own(part: nn.Module) -> Iterator[tuple[str, Any]]:
    missing: Mapping[str, Any] = {**part._parameters, **part._buffers}
    yield from ((name, None) for name, value in missing.items() if value is None)
    for name, value in vars(part).items():
        if not name.startswith("_") and name not in ("training", "forward"):
            yield name, value


def _pins(name: str, value: Any) -> Iterator[tuple[str, Scalar]]:
    if is_scalar(value):
        yield name, value
    elif isinstance(value, tuple | list) and len(value) <= 16:
        # stride=(2, 2): two convolutions with the same weights may still compute different things
        yield from ((f"{name}[{i}]", item) for i, item in enumerate(value) if is_scalar(item))
    elif isinstance(value, FunctionType | BuiltinFunctionType):
        yield name, _qualified(value)


def _qualified(thing: Any) -> str:
    return f"{getattr(thing, '__module__', None) or 'torch'}.{thing.__qualname__}"


_NOTHING = object()


def _follow(module: nn.Module, chain: Chain) -> Any:
    value: Any = module
    for part in chain:
        if isinstance(value, torch.Tensor):
            return _NOTHING  # `weight.ndim` is in the tensor's own entry
        try:
            value = getattr(value, part)
        except Exception:  # a property of the user's may raise anything; then there is nothing to record
            return _NOTHING
    if isinstance(value, BuiltinFunctionType) and not isinstance(value.__self__, ModuleType | type | None):
        return _NOTHING
    # A method is not state, however it is reached.
    return _NOTHING if isinstance(value, FunctionType) and len(chain) == 1 else value


def _chains_read(cls: type) -> set[Chain]:
    """Returns ``a.b`` for every ``self.a.b`` in the source of a class and of its bases outside torch."""
    found: set[Chain] = set()
    for base in cls.__mro__:
        if base is object or base.__module__.partition(".")[0] == "torch":
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):
            continue  # made without a source file
        for node in ast.walk(tree):
            read = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
            chain = chain_of(node) if read else None
            if chain and chain[0] == "self" and not any(p.startswith("__") or p == "training" for p in chain):
                found.add(chain[1:])
    return found
