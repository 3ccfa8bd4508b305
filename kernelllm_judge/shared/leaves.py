"""Describes outputs by what a caller could notice: how they nest, types, dtypes, shapes, strides, devices, and shared memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch


def flatten(value: Any) -> tuple[Any, list[Any]]:
    """Returns the structure of nested tuples, lists and mappings, and their leaves, depth first.

    A leaf is ``"*"`` in the structure, None is None: ``(a, {"h": b})`` is ``["tuple", "*", ["dict", "h", "*"]]``. Other
    types than these go by their full names: what ``x.max(0)`` returns is ``["torch.return_types.max", "*", "*"]``.
    """
    leaves: list[Any] = []
    return _walk(value, leaves), leaves


def _walk(item: Any, leaves: list[Any]) -> Any:
    # Not nested in `flatten`: a reference cycle would keep the leaves alive, and GPU memory with them.
    if item is None:
        return None
    if isinstance(item, tuple | list):
        return [_kind(item), *(_walk(part, leaves) for part in item)]
    if isinstance(item, Mapping):
        return [_kind(item), *(part for key in item for part in (str(key), _walk(item[key], leaves)))]
    leaves.append(item)
    return "*"


def _kind(item: Any) -> str:
    kind = type(item)
    return kind.__name__ if kind in (tuple, list, dict) else f"{kind.__module__}.{kind.__qualname__}"


def describe(leaf: Any) -> dict[str, Any]:
    """Returns a leaf's description as JSON. Strides of dimensions of size 1 mean nothing and are given as 0."""
    if not isinstance(leaf, torch.Tensor):
        return {"type": type(leaf).__name__}
    strides = [
        0 if size == 1 or leaf.numel() == 0 else stride
        for size, stride in zip(leaf.shape, leaf.stride(), strict=True)
    ]
    return {
        "type": "Tensor" if type(leaf) is torch.Tensor else type(leaf).__qualname__,
        "dtype": str(leaf.dtype).removeprefix("torch."),
        "shape": list(leaf.shape),
        "strides": strides,
        "device": leaf.device.type,
    }


def shared(leaves: Sequence[Any], others: Mapping[str, Any]) -> list[list[str]]:
    """Returns the pairs of names whose memory overlaps; the second one is an output (``output 0``)."""
    outputs = {f"output {i}": leaf for i, leaf in enumerate(leaves)}
    spans = {name: _span(value) for name, value in {**others, **outputs}.items() if _is_dense(value)}
    return sorted(
        [name, output]
        for name, output in itertools.combinations(spans, 2)
        if output in outputs and _overlap(spans[name], spans[output])
    )


def held(leaves: Sequence[Any], others: Mapping[str, Any]) -> int:
    """Returns the bytes of all memory that the leaves lie in and the others do not."""
    theirs = {value.untyped_storage().data_ptr() for value in others.values() if _is_dense(value)}
    storages = [leaf.untyped_storage() for leaf in leaves if _is_dense(leaf)]
    sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
    return sum(size for address, size in sizes.items() if address not in theirs)


def placed(tensors: Mapping[str, torch.Tensor]) -> dict[str, tuple[Any, ...]]:
    """Returns where each tensor lies and in which version: what an in-place change of it changes."""
    return {
        name: (tuple(t.shape), t.stride(), t.dtype, t.data_ptr(), t._version) for name, t in tensors.items()
    }


def _is_dense(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns the addresses of a strided tensor's first byte and of the one after its last."""
    if tensor.numel() == 0:
        return (0, 0)
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.itemsize


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
