"""Attention with masks, biases or none as one kernel, for lengths and masks that the libraries' kernels do not take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node

from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.forms.attention_kernel import ATTENTION, block_of
from pytest_kernelllm.generate.inductor.forms.attention_masks import Mask, same, used_blocks
from pytest_kernelllm.generate.inductor.forms.form import Form, Traced, Writer, aten
from pytest_kernelllm.generate.inductor.variants import Variant

_BLOCKS = ((64, 64, 4, 3, True), (128, 64, 8, 3, False), (64, 128, 4, 2, False), (128, 128, 8, 2, True))
"""Queries and keys of a block, warps, pipeline stages, and whether blocks that a mask leaves out are passed over, by a variant's
``rank``."""
_LARGEST_HEAD = 256
_BY_POSITION = torch.ops.kernelllm.attention_by_position.default
_TO = torch.ops.prims.convert_element_type.default
_SAME_ELEMENTS = (
    *(aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.clone.default),
    *(aten.expand.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims),
)


class Attention(Form):
    """Attention in half precision that is not causal: PyTorch's function, or two products with a softmax between them.

    Alone, without a search for launches: window attention with a bias (2,048 windows of 49, 4 heads of 32) takes 55 µs in place of
    431; 32 × 197 tokens, 16 heads of 64, 43 in place of 138, with a mask of booleans 85 in place of 163; 16 × 512 tokens with such a
    mask 70 in place of 144. Without a mask and at lengths that are multiples of 8 the library is faster.
    """

    name = "attention"

    def matches(self, traced: Traced) -> bool:
        """Whether there is one that becomes a kernel."""
        return any(_calls(traced.graph))

    def writes(self, graph: GraphModule, gpu: Gpu, variant: Variant) -> None:
        """Writes all of them as the operation that becomes a kernel."""
        for call in list(_calls(graph.graph)):
            block = _block(call, variant.rank, gpu)
            with graph.graph.inserting_before(call.node):
                write = Writer(graph.graph)
                masks = [mask.laid_out(write, call.inner) for mask in call.masks]
                key = write(aten.permute.default, call.key, [0, 1, 3, 2]) if call.turned else call.key
                used: list[Node] = []
                if _BLOCKS[variant.rank][-1]:
                    operands, sizes = (call.query, key, call.value), (block[0], block[1])
                    used = used_blocks(write, operands, call.masks, call.inner, sizes)
                result = write(
                    ATTENTION, call.query, key, call.value, masks, used, call.scale, call.safe, block
                )
                if call.node.target is not _BY_POSITION:
                    result = write(aten.permute.default, result, [0, 2, 1, 3])
                    if not all(_turns_back(user) for user in call.node.users):
                        result = write(aten.clone.default, result, memory_format=torch.contiguous_format)
            call.node.replace_all_uses_with(result)
        graph.graph.eliminate_dead_code()
        graph.recompile()


@dataclass(frozen=True)
class _Call:
    """Attention that becomes a kernel."""

    node: Node
    """What it gives: (batch, heads, length, size)."""
    query: Node
    key: Node
    value: Node
    masks: tuple[Mask, ...]
    scale: float
    safe: bool
    """Whether what may look at no key gives 0, and not NaN."""
    turned: bool = False
    """Whether keys are (batch, heads, size, length)."""

    @property
    def inner(self) -> int:
        """The inner batch: batches that follow each other have masks of their own, and those so many later the same."""
        return next((int(mask.sizes[1]) for mask in self.masks if len(mask.sizes) == 5), 1)

    @property
    def has_kernel(self) -> bool:
        """Whether sizes and dtypes are those of the kernel."""
        query, key, value = (node.meta["val"] for node in (self.query, self.key, self.value))
        given = (query, key, value)
        if any(tensor.dim() != 4 for tensor in given):
            return False
        batch, heads, queries, size = query.shape
        keys, width = (key.shape[3], key.shape[2]) if self.turned else key.shape[2:]
        return (
            query.dtype in (torch.bfloat16, torch.float16)
            and all(tensor.dtype is self.node.meta["val"].dtype for tensor in given)
            and all(isinstance(length, int) for tensor in given for length in tensor.shape[1:])
            and same(key.shape[:2], value.shape[:2])
            and same((batch, keys, size, size), (key.shape[0], value.shape[2], width, value.shape[3]))
            and heads % key.shape[1] == 0
            and size <= _LARGEST_HEAD
            and all(mask.fits(batch, (heads, queries, keys)) for mask in self.masks)
            and len({mask.sizes[1] for mask in self.masks if len(mask.sizes) == 5}) <= 1
        )


def _block(call: _Call, rank: int, gpu: Gpu) -> list[int]:
    """Returns what ``ATTENTION`` calls ``block``: no larger than what there is, and not more stages than shared memory holds."""
    rows, columns, warps, stages, _ = _BLOCKS[rank]
    _, _, length, size = call.query.meta["val"].shape
    rows, columns = block_of(int(length), rows), block_of(int(call.value.meta["val"].shape[2]), columns)
    width = 2 * block_of(int(size), _LARGEST_HEAD)  # bytes
    masks = rows * columns * sum(mask.node.meta["val"].dtype.itemsize for mask in call.masks)
    free = gpu.shared_memory_per_block_optin - rows * width
    fit = free // (2 * columns * width + masks)
    return [rows, columns, min(warps, max(4, rows // 16)), max(1, min(stages, fit))]


def _turns_back(node: Node) -> bool:
    return node.target is aten.permute.default and node.args[1] == [0, 2, 1, 3]


def _calls(graph: Graph) -> Iterator[_Call]:
    for node in graph.nodes:
        found = None
        if node.target is _BY_POSITION:  # where it is returned as it is, each library has another order
            found = _called(node)
        elif node.target is aten.bmm.default:
            found = _written_out(node)
        if found is not None and found.has_kernel:
            yield found


# --------------------------------------------------------------------------- as PyTorch's function


def _called(node: Node) -> _Call | None:
    query, key, value, *rest = _arguments(node)
    given = dict(zip(("attn_mask", "dropout_p", "is_causal"), rest, strict=False)) | node.kwargs
    if given.get("is_causal") or given.get("dropout_p") or query.meta["val"].dim() != 4:
        return None
    mask, scale = given.get("attn_mask"), given.get("scale")
    scale = float(query.meta["val"].shape[-1]) ** -0.5 if scale is None else scale
    sizes = (*query.meta["val"].shape[:3], key.meta["val"].shape[2])
    masks = () if mask is None else (Mask(_as_given(mask), sizes),)
    return _Call(node, query, key, value, masks, float(scale), safe=True)


def _as_given(mask: Node) -> Node:
    """Returns the mask of booleans that an added one was made of, as ``library`` does it; another one is returned as it is."""
    made = _arguments(mask)[0] if mask.target is _TO else mask
    if isinstance(made, Node) and made.target is aten.where.self:
        given, chosen, other = _arguments(made)
        if isinstance(given, Node) and (_number(chosen), _number(other)) == (0.0, -math.inf):
            return given
    return mask


def _number(value: Any) -> Any:
    if isinstance(value, Node):
        return _arguments(value)[1] if value.target is aten.full.default else None
    return value if isinstance(value, int | float) else None


# --------------------------------------------------------------------------- written out


def _written_out(last: Node) -> _Call | None:
    """Attention whose second product this is."""
    users = list(last.users)
    if len(users) != 1 or users[0].target not in _SAME_ELEMENTS or users[0].meta["val"].dim() != 4:
        return None
    batch, heads, queries, size = users[0].meta["val"].shape
    weights, values = _arguments(last)
    scores = _scores_of(_unwrapped(weights))
    found = scores and _masked(scores, 1.0, ())
    if not found:
        return None
    first, scale, masks = found
    keys = values.meta["val"].shape[1]
    query, factor = _scaled(_shaped(_arguments(first)[0], (batch, heads, queries, size)))
    key, other = _scaled(_shaped(_arguments(first)[1], (batch, heads, size, keys)))
    value = _shaped(values, (batch, heads, keys, size))
    if query is None or key is None or value is None:
        return None
    return _Call(users[0], query, key, value, masks, scale * factor * other, safe=False, turned=True)


def _scores_of(weights: Node) -> Node | None:
    """What a softmax over the last dimension was computed of."""
    if weights.target is not aten.div.Tensor:
        return None
    powers, total = _arguments(weights)
    if (
        powers.target is not aten.exp.default
        or total.target is not aten.sum.dim_IntList
        or _arguments(total)[0] is not powers
    ):
        return None
    less = _arguments(powers)[0]
    if less.target is not aten.sub.Tensor:
        return None
    scores, highest = _arguments(less)
    if highest.target is not aten.amax.default or _arguments(highest)[0] is not scores:
        return None
    last = [[-1], True], [[scores.meta["val"].dim() - 1], True]
    return scores if all(list(_arguments(each)[1:]) in last for each in (highest, total)) else None


def _masked(node: Node, scale: float, masks: tuple[Mask, ...]) -> tuple[Node, float, tuple[Mask, ...]] | None:
    """Goes from scores back to their product: returns it with what scores are multiplied with, and the masks added to them."""
    if node.target is aten.bmm.default:
        return node, scale, masks
    first, second = (*_arguments(node), None)[:2]
    if not isinstance(first, Node) or not node.meta["val"].is_floating_point():
        return None
    if node.target is _TO or node.target in _SAME_ELEMENTS:
        return _masked(first, scale, masks) if _is_same_matrices(node, first) else None
    number = _number(second)
    if node.target is aten.mul.Tensor and number and _is_same_matrices(node, first):
        return _masked(first, scale * number, masks)
    if node.target is aten.div.Tensor and number and _is_same_matrices(node, first):
        return _masked(first, scale / number, masks)
    if node.target is not aten.add.Tensor or scale != 1.0 or node.kwargs or not isinstance(second, Node):
        return None
    sizes = tuple(node.meta["val"].shape)
    for scores, mask in ((first, second), (second, first)):
        if tuple(scores.meta["val"].shape) == sizes and mask.meta["val"].is_floating_point():
            found = _masked(scores, scale, (Mask(mask, sizes), *masks))
            if found:
                return found
    return None


def _is_same_matrices(node: Node, first: Node) -> bool:
    """Whether two nodes have the same number of matrices of the same sizes, which views and copies then leave in their order."""
    one, other = node.meta["val"].shape, first.meta["val"].shape
    return same((*one[-2:], one.numel()), (*other[-2:], other.numel()))


def _unwrapped(node: Node) -> Node:
    while node.target in _SAME_ELEMENTS or node.target is _TO:
        node = _arguments(node)[0]
    return node


def _shaped(node: Node, sizes: Sequence[Any]) -> Node | None:
    """Returns the first node with these sizes among those whose elements an operand has, before it is copied."""
    found = None
    while True:
        if tuple(node.meta["val"].shape) == tuple(sizes):
            found = node
        if node.target not in _SAME_ELEMENTS:
            return found
        node = _arguments(node)[0]


def _scaled(node: Node | None) -> tuple[Node | None, float]:
    """Returns an operand without the number that it was multiplied with, and that."""
    if node is not None and node.target is aten.mul.Tensor:
        operand, factor = _arguments(node)
        if (number := _number(factor)) and operand.meta["val"].shape == node.meta["val"].shape:
            return operand, number
    return node, 1.0


def _arguments(node: Node) -> tuple[Any, ...]:
    return cast(tuple[Any, ...], node.args)
