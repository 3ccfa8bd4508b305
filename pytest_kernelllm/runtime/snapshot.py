"""Notices cheaply that a module is no longer what was checked: one snapshot replaces many questions."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sized
from typing import Any

import torch
from torch import nn

from pytest_kernelllm.runtime.domain import MISSING, split_item


class Snapshot:
    """Everything about a module that a domain check reads, as it was at one moment.

    Holds the very objects it saw, but not the module, and compares by identity, in loops that run in C:
    looking again costs some 50 ns for each.
    """

    def __init__(self, module: nn.Module, paths: Iterable[str]) -> None:
        """``paths``: the dotted names whose values count."""
        self._class = type(module)
        self._namespaces: list[dict[str, Any]] = []
        self._names: list[str] = []
        self._values: list[Any] = []
        self._computed: list[tuple[Any, str, Any]] = []
        self._items: list[tuple[list[Any], int, Any]] = []
        self._tensors: list[tuple[torch.Tensor, Any, Any, Any]] = []
        self._sized: list[Sized] = [vars(module)]
        seen: set[tuple[int, str]] = set()
        for path in paths:
            self._add(module, path, seen)
        for child in module.modules():
            self._watch(vars(child), "training", child.training)
            self._sized += [child._modules, child._parameters, child._buffers]
            if child is not module:
                self._sized += [vars(child), child._forward_hooks, child._forward_pre_hooks]
                self._sized += [child._backward_hooks, child._backward_pre_hooks]
        self._lengths = list(map(len, self._sized))

    def holds(self, module: nn.Module) -> bool:
        """Whether the module, the one this was made of, is still as it was."""
        if type(module) is not self._class or list(map(len, self._sized)) != self._lengths:
            return False
        if not all(map(operator.is_, map(dict.get, self._namespaces, self._names), self._values)):
            return False
        for tensor, dtype, device, shape in self._tensors:  # `.to()` changes parameters in place
            if tensor.dtype is not dtype or tensor.device != device or tensor.shape != shape:
                return False
            if not tensor.is_contiguous():
                return False
        for owner, name, value in self._computed:
            if getattr(module if owner is None else owner, name, MISSING) is not value:
                return False
        return all(len(items) > index and items[index] is value for items, index, value in self._items)

    def requires_grad(self) -> bool:
        """Whether any of the tensors wants a gradient."""
        return any(tensor.requires_grad for tensor, *_ in self._tensors)

    def _add(self, root: nn.Module, path: str, seen: set[tuple[int, str]]) -> None:
        owner: Any = root
        for part in path.split("."):
            name, index = split_item(part)
            value = getattr(owner, name, MISSING)
            if (id(owner), name) not in seen:
                seen.add((id(owner), name))
                if (namespace := _namespace(owner, name, value)) is not None:
                    self._watch(namespace, name, value)
                else:
                    # None for the module itself, which must not be kept alive from here.
                    self._computed.append((None if owner is root else owner, name, value))
                if isinstance(value, torch.Tensor):
                    self._tensors.append((value, value.dtype, value.device, value.shape))
            if isinstance(value, list) and index is not None and index < len(value):
                self._items.append((value, index, value[index]))
            owner = value

    def _watch(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        self._namespaces.append(namespace)
        self._names.append(name)
        self._values.append(value)


def _namespace(owner: Any, name: str, value: Any) -> dict[str, Any] | None:
    """The dictionary that gives ``owner`` this attribute; None where the class or code does."""
    found: list[Any] = [getattr(owner, "__dict__", None)]
    if isinstance(owner, nn.Module):
        found += [owner._parameters, owner._buffers, owner._modules]
    holders = (each for each in found if isinstance(each, dict) and each.get(name, MISSING) is value)
    return next(holders, None)
