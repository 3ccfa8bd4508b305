"""Finds attention in a captured graph, as one call of PyTorch's or written out as two products with a softmax between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

import torch
from torch.fx import GraphModule, Node

from kernelllm_runtime.regions.kinds import Kind, value_of


def attention_in(
    module: GraphModule,
    kinds: Mapping[Node, Kind],
    bases: Mapping[Node, Node],
    groups: Sequence[Sequence[Node]],
    changed: Set[Node],
) -> dict[Node, list[Node]]:
    """Returns the nodes of each attention by its last operation, in the graph's order.

    They are the operations themselves, what only prepares the operands of the first product, and what copies the result. None is
    part of two.

    Args:
        bases: the node whose memory each shows, itself for all but views.
        groups: fusable nodes that hang together.
        changed: nodes whose memory is changed in place.
    """
    order = {node: number for number, node in enumerate(module.graph.nodes)}
    found = {node: [node] for node in module.graph.nodes if kinds[node].sort == "attention"}
    for group in groups:
        written = _written_out(group, kinds, bases, groups)
        if written:
            found[written[-1]] = written
    taken: set[Node] = set()
    kept: dict[Node, list[Node]] = {}
    for call in sorted(found, key=order.__getitem__):
        read = {bases[each] for node in found[call] for each in (node, *node.all_input_nodes)}
        # A product may be the last of one attention and the first of the next.
        if read & changed or taken.intersection(found[call]):
            continue
        kept[call] = sorted((*found[call], *_copies_of(call, kinds, changed)), key=order.__getitem__)
        taken.update(kept[call])
    return kept


def _written_out(
    group: Sequence[Node],
    kinds: Mapping[Node, Kind],
    bases: Mapping[Node, Node],
    groups: Sequence[Sequence[Node]],
) -> list[Node]:
    """The nodes of two products with a group between them; empty where it is none that attention is made of."""
    if not any("softmax" in _name(node) for node in group):
        return []
    inside = set(group)
    read = {bases[each] for node in group for each in node.all_input_nodes} - inside
    scores = [node for node in read if kinds[node].sort == "product"]
    given = {reader for node in group for reader in _readers(node, kinds)} - inside
    if len(scores) != 1 or len(given) != 1 or not set(_readers(scores[0], kinds)) <= inside:
        return []
    (last,) = given
    left = last.args[0] if last.args else None
    if kinds[last].sort != "product" or not isinstance(left, Node) or bases[left] not in inside:
        return []
    first = scores[0]
    before = [each for each in groups if _is_read_by(first, each, kinds)]
    return [*(node for each in before for node in each), first, *group, last]


def _is_read_by(product: Node, group: Sequence[Node], kinds: Mapping[Node, Kind]) -> bool:
    """Whether a group is there for a product alone."""
    return {reader for node in group for reader in _readers(node, kinds)} - set(group) == {product}


def _name(node: Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _readers(node: Node, kinds: Mapping[Node, Kind]) -> Iterator[Node]:
    """What reads a node, also through views."""
    for user in node.users:
        if kinds[user].base is not None:
            yield from _readers(user, kinds)
        else:
            yield user


def _copies_of(call: Node, kinds: Mapping[Node, Kind], changed: Set[Node]) -> list[Node]:
    """The nodes that copy a call's result, and copies of them, as far as nothing changes them in place."""
    copies = {node for node in _readers(call, kinds) if kinds[node].sort == "copy" and _reads_one(node)}
    found = copies - changed
    return [*found, *(each for node in found for each in _copies_of(node, kinds, changed))]


def _reads_one(node: Node) -> bool:
    return sum(isinstance(value_of(each), torch.Tensor) for each in node.all_input_nodes) == 1
