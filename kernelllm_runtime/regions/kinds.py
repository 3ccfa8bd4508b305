"""Tells the nodes of a captured graph apart: views, what a kernel may fuse, and what stays with the library."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from kernelllm_runtime.regions.expression import Inexpressible, call_of

Sort = Literal["view", "copy", "fusable", "product", "attention", "kept"]
"""Copies are fusable. Products of batches of matrices and attention are kept unless a kernel computes them as attention."""

_STAY = ("embedding", "sort", "topk", "gather", "scatter", "nonzero", "unique", "multinomial")
"""Parts of names of operations that choose or move by data, which the library does well, or which a kernel cannot."""
_STAY_WHOLE = ("index", "index_select", "index_put", "index_copy", "index_add", "take", "masked_select")
_ATTENTION = functional.scaled_dot_product_attention
_COPIES = ("clone", "copy", "contiguous", "unsafe_view")
"""Beginnings of names of operations that lay elements out otherwise, beside views."""
_HEAVY_TAGS = (
    torch.Tag.nondeterministic_seeded,
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
)


@dataclass(frozen=True)
class Kind:
    """What a node is."""

    sort: Sort
    base: Node | None = None
    """For a view, the argument whose memory it shows."""
    writes: tuple[Node, ...] = ()
    """Arguments that it changes in place."""


KEPT = Kind("kept")


def value_of(node: Node) -> Any:
    """Returns the tensor without data that Dynamo noted for a node, or another value; None if there is none."""
    return node.meta.get("example_value", node.meta.get("val"))


def kinds_of(module: GraphModule) -> dict[Node, Kind]:
    """Returns the kind of every node. Each distinct call runs once on tensors without data."""
    known: dict[Any, tuple[Sort, int | None, tuple[int, ...]]] = {}
    found: dict[Node, Kind] = {}
    for node in module.graph.nodes:
        if node.op not in ("call_function", "call_method"):
            found[node] = KEPT
            continue
        inputs = node.all_input_nodes
        if node.target is operator.getitem and inputs and not isinstance(value_of(inputs[0]), torch.Tensor):
            whole = found[inputs[0]]  # a part of a tuple is what the tuple is
            found[node] = Kind(whole.sort, inputs[0] if whole.sort == "view" else None)
            continue
        form = _form(node)
        if form not in known:
            known[form] = _sort_of(node, inputs)
        sort, base, writes = known[form]
        found[node] = Kind(sort, None if base is None else inputs[base], tuple(inputs[i] for i in writes))
    return found


def _form(node: Node) -> Any:
    """A value that is equal for calls of equal functions with equal plain values on equal tensors."""
    places = {each: number for number, each in enumerate(node.all_input_nodes)}
    shown = map_arg((node.args, node.kwargs), lambda each: f"%{places[each]}")
    tensors = tuple(repr([_signature(t) for t in tree_leaves(value_of(n))]) for n in node.all_input_nodes)
    return node.op, node.target, repr(shown), tensors, _unpacked(node)


def _signature(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.stride(), value.device.type
    return value


def _sort_of(node: Node, inputs: list[Node]) -> tuple[Sort, int | None, tuple[int, ...]]:
    given = [value_of(each) for each in inputs]
    kept: tuple[Sort, None, tuple[int, ...]] = ("kept", None, ())
    if any(value is None for value in given) or not _plain((given, value_of(node))):
        return kept
    watch = _Watch([tree_leaves(value) for value in given])
    values = dict(zip(inputs, given, strict=True))
    # Not that of the tracing context: Dynamo has begun another one since it noted these values.
    leaves = tree_leaves((given, value_of(node)))
    mode = next((leaf.fake_mode for leaf in leaves if isinstance(leaf, FakeTensor)), None)
    if mode is None or (node.op == "call_method" and str(node.target).endswith("_")):
        return "kept", None, tuple(range(len(inputs)))
    try:
        with torch.no_grad(), _as_judged(), mode, watch:
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            target: Any = node.target
            function = getattr(torch.Tensor, target) if node.op == "call_method" else target
            result = function(*args, **kwargs)
        call_of(node, dict.fromkeys(inputs, "x"), "d")
    except Inexpressible:
        return "kept", None, watch.written
    except Exception:  # what runs on data only is none of ours
        return "kept", None, tuple(range(len(inputs)))
    tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if watch.written or not tensors or not _alike(result, value_of(node)):
        return "kept", None, watch.written
    if len({leaf.device for leaf in tree_leaves((given, result)) if isinstance(leaf, torch.Tensor)}) > 1:
        return kept
    if node.target is _ATTENTION and _is_of_all_keys(args, kwargs):
        return "attention", None, ()
    if watch.stays:
        return ("product" if watch.products == 1 else "kept"), None, ()
    sources = {watch.source(tensor) for tensor in tensors}
    if None not in sources:
        return ("view", min(s for s in sources if s is not None), ()) if len(sources) == 1 else kept
    if sources != {None} or (not isinstance(result, torch.Tensor) and not _unpacked(node)):
        return kept
    return ("copy" if watch.copies else "fusable"), None, ()


def _is_of_all_keys(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether attention drops nothing and is not causal; the library skips half of the work of what is."""
    named = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = {**dict(zip(named, args, strict=False)), **kwargs}
    return not given.get("dropout_p") and not given.get("is_causal")


@contextmanager
def _as_judged() -> Iterator[None]:
    """A context in which torch computes as where regions are judged: without autocast, and new tensors are float32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch._C._DisableAutocast():
            yield
    finally:
        torch.set_default_dtype(before)


def _alike(found: Any, noted: Any) -> bool:
    """Whether a call gave what it gives in the model, where torch may be set to compute otherwise."""
    pairs = zip(tree_leaves(found), tree_leaves(noted), strict=False)
    return all(
        a.dtype == b.dtype for a, b in pairs if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    )


def _unpacked(node: Node) -> bool:
    """Whether only single parts of a tuple are used."""
    return all(user.target is operator.getitem for user in node.users)


def is_batched(value: Any) -> bool:
    """Whether a value is a tensor inside ``vmap``, where nodes mean something only between its begin and its end."""
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value)


def memory_of(value: Any) -> int | None:
    """What is equal for tensors that share memory; None for others than plain tensors."""
    if not isinstance(value, torch.Tensor) or is_batched(value) or value.layout is not torch.strided:
        return None
    return int(value.untyped_storage()._cdata)


def _plain(values: Any) -> bool:
    """Whether all tensors are strided, of fixed sizes and real."""
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
            return False
        if isinstance(leaf, torch.Tensor) and (
            is_batched(leaf)
            or leaf.layout is not torch.strided
            or leaf.is_complex()
            or leaf.is_quantized
            or any(isinstance(size, torch.SymInt) for size in leaf.shape)
        ):
            return False
    return True


class _Watch(TorchDispatchMode):
    """Sees the operations that one call is made of."""

    def __init__(self, given: Iterable[list[Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._storages: dict[int, int] = {}
        for number, leaves in enumerate(given):
            for leaf in leaves:
                if isinstance(leaf, torch.Tensor):
                    self._storages.setdefault(leaf.untyped_storage()._cdata, number)
        self._written: set[int] = set()
        self.stays = False
        self.copies = True
        self.products = 0
        """Products of batches of matrices, or -1 where something else stays."""

    @property
    def written(self) -> tuple[int, ...]:
        """Which of the given values were changed."""
        return tuple(sorted(self._written))

    def source(self, tensor: torch.Tensor) -> int | None:
        """Returns which of the given values a tensor shares its memory with; None if it has its own."""
        return self._storages.get(tensor.untyped_storage()._cdata)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and notes what it is."""
        name = func._schema.name.partition("::")[2]
        stays = (
            func.namespace not in ("aten", "prim")
            or func._overloadpacket in flop_registry
            or "attention" in name
            or name.endswith(("mm", "mv"))
            or any(part in name for part in _STAY)
            or name.strip("_") in _STAY_WHOLE
            or any(tag in func.tags for tag in _HEAVY_TAGS)
        )
        self.stays |= stays
        if stays:
            self.products = self.products + 1 if name == "bmm" and self.products >= 0 else -1
        if func.namespace != "prim":  # which asks for a device
            self.copies &= func.is_view or name.strip("_").startswith(_COPIES)
        named = list(zip(func._schema.arguments, args, strict=False))
        # Statistics of a batch are written, which their schema does not say.
        trains = any(argument.name in ("train", "training") and value for argument, value in named)
        for argument, value in named:
            if (argument.alias_info is not None and argument.alias_info.is_write) or (
                trains and argument.name.startswith("running_")
            ):
                for leaf in tree_leaves(value):
                    if isinstance(leaf, torch.Tensor) and (source := self.source(leaf)) is not None:
                        self._written.add(source)
        return func(*args, **(kwargs or {}))
