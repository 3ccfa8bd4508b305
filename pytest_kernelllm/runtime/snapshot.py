"""Notices cheaply that a module is no longer what was checked: one snapshot replaces many questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Any

import torch
from torch import nn

from pytest_kernelllm.runtime.domain import MISSING


class Snapshot:
    """Everything about a module that a domain check reads, as it was at one moment.

    Holds the very objects it saw and compares by identity, so that looking again costs some 50 ns each.
    """

    def __init__(self, module: nn.Module, paths: Iterable[str]) -> None:
        """``paths``: the dotted names whose values count."""
        self._same: list[tuple[Mapping[str, Any], str, Any]] = []
        self._computed: list[tuple[Any, str, Any]] = []
        self._sizes: list[tuple[Sized, int]] = [(vars(module), len(vars(module)))]
        self._tensors: list[tuple[torch.Tensor, Any, Any, Any]] = []
        self._class = type(module)
        seen: set[tuple[int, str]] = set()
        for path in paths:
            self._add(module, path, seen)
        for child in module.modules():
            self._same.append((vars(child), "training", child.training))
            counted: list[Sized] = [child._modules, child._parameters, child._buffers]
            if child is not module:
                counted += [child._forward_hooks, child._forward_pre_hooks]
                counted += [child._backward_hooks, child._backward_pre_hooks]
                counted.append(vars(child))
            self._sizes += [(each, len(each)) for each in counted]

    def holds(self, module: nn.Module) -> bool:
        """Whether the module, the one this was made of, is still as it was."""
        if type(module) is not self._class:
            return False
        for namespace, name, value in self._same:
            if namespace.get(name, MISSING) is not value:
                return False
        for sized, size in self._sizes:
            if len(sized) != size:
                return False
        for tensor, dtype, device, shape in self._tensors:  # `.to()` changes parameters in place
            if tensor.dtype is not dtype or tensor.device != device or tensor.shape != shape:
                return False
            if not tensor.is_contiguous():
                return False
        for owner, name, value in self._computed:
            if getattr(module if owner is None else owner, name, MISSING) is not value:
                return False
        return True

    def requires_grad(self) -> bool:
        """Whether any of the tensors wants a gradient."""
        return any(tensor.requires_grad for tensor, *_ in self._tensors)

    def _add(self, root: nn.Module, path: str, seen: set[tuple[int, str]]) -> None:
        owner: Any = root
        for name in path.split("."):
            value = getattr(owner, name, MISSING)
            if (id(owner), name) not in seen:
                seen.add((id(owner), name))
                if namespace := _namespace(owner, name, value):
                    self._same.append((namespace, name, value))
                else:
                    # None for the module itself, which must not be kept alive from here
                    self._computed.append((None if owner is root else owner, name, value))
                if isinstance(value, torch.Tensor):
                    self._tensors.append((value, value.dtype, value.device, value.shape))
            owner = value


def _namespace(owner: Any, name: str, value: Any) -> Mapping[str, Any] | None:
    """The dictionary that gives ``owner`` this attribute; None where the class or code does."""
    found: list[Mapping[str, Any]] = [getattr(owner, "__dict__", {})]
    if isinstance(owner, nn.Module):
        found += [owner._parameters, owner._buffers, owner._modules]
    return next((each for each in found if value is not MISSING and each.get(name, MISSING) is value), None)
