"""Describes single operations of PyTorch: the memory that they read and write, and their FLOPs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from kernelllm_judge.timing.roofline import Flops

Kind = Literal["light", "heavy", "unknown"]
"""``light`` operations can be fused with their neighbours; ``heavy`` ones are matrix multiplications, convolutions and
attention; ``unknown`` ones are a library's own."""


@dataclass(frozen=True)
class Region:
    """Memory that a tensor covers."""

    storage: int
    """Number of the storage; a later one in the same memory has another number."""
    where: tuple[Any, ...]
    """Offset, shape and strides."""
    bytes: int


@dataclass(frozen=True)
class Operation:
    """One operation that moves memory."""

    name: str
    kind: Kind
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    flops: int
    """FLOPs of a heavy operation; 0 for others, whose time their memory decides."""
    dtype: str
    """The dtype of its first floating input."""

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return sum(region.bytes for region in (*self.reads, *self.writes))

    @property
    def work(self) -> Flops:
        """Its FLOPs, as a roofline takes them."""
        return Flops(self.flops, self.flops if "convolution" in self.name else 0)


RegionOf = Callable[[torch.Tensor], Region]

_NOTHING = {
    "empty",
    "empty_strided",
    "empty_like",
    "new_empty",
    "new_empty_strided",
    "_local_scalar_dense",
    "resize_",
}
"""Operations that move no memory and return no views."""
_GATHERS = {"embedding", "index_select", "gather", "index", "take", "take_along_dim", "_embedding_bag"}
"""Operations that read no more of their first tensor than they write."""
_SCATTERS = {"index_put_", "index_copy_", "index_add_", "scatter_", "scatter_add_", "_index_put_impl_"}
"""Operations that write no more of their first tensor than they read of the others."""
_OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_"}
"""Operations that write their first tensor without reading it."""


def operation(func: Any, args: Any, kwargs: Any, out: Any, region: RegionOf) -> Operation | None:
    """Describes a call of the dispatcher after it ran; None if it moves nothing, as a view does."""
    name = func._schema.name.partition("::")[2]
    if func.namespace == "prim" or name in _NOTHING or func.is_view:
        return None
    changed = [
        given
        for argument, given in zip(func._schema.arguments, args, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    results = [kwargs[a.name] for a in func._schema.arguments if a.is_out and a.name in kwargs]
    given = [tensor for tensor in _tensors((args, kwargs)) if all(tensor is not result for result in results)]
    known = {region(tensor).storage for tensor in (*given, *results)}
    written = {region(tensor) for tensor in _tensors((changed, results))}
    written |= {each for tensor in _tensors(out) if (each := region(tensor)).storage not in known}
    if not written:
        return None
    reads = dict.fromkeys(region(tensor) for tensor in given)
    first = next(iter(reads), None)
    if first is not None and name in _GATHERS:
        reads = dict.fromkeys([_at_most(first, sum(w.bytes for w in written)), *list(reads)[1:]])
    elif first is not None and name in _OVERWRITES | _SCATTERS:
        del reads[first]
        if name in _SCATTERS:
            written = {_at_most(each, sum(r.bytes for r in reads)) for each in written}
    count = flop_registry.get(func._overloadpacket)
    kind: Kind = "heavy" if count else "light" if func.namespace == "aten" else "unknown"
    flops = int(count(*args, **kwargs, out_val=out)) if count else 0
    return Operation(name, kind, tuple(reads), tuple(written), flops, _dtype(given))


def attention(args: Any, kwargs: Any, out: torch.Tensor, region: RegionOf) -> Operation:
    """Describes a call of ``scaled_dot_product_attention`` as one kernel that keeps its scores to itself."""
    given = _tensors((args, kwargs))
    query, key, value = given[:3]
    rows = query.numel() // max(query.shape[-1], 1)
    flops = 2 * rows * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    if kwargs.get("is_causal") or (len(args) > 5 and args[5]):
        flops //= 2
    reads = tuple(dict.fromkeys(map(region, given)))
    return Operation("scaled_dot_product_attention", "heavy", reads, (region(out),), flops, _dtype(given))


def _at_most(region: Region, size: int) -> Region:
    return Region(region.storage, region.where, min(region.bytes, size))


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _dtype(given: Iterable[torch.Tensor]) -> str:
    """The name of the first floating dtype."""
    found = (str(tensor.dtype).removeprefix("torch.") for tensor in given if tensor.is_floating_point())
    return next(found, "float32")
