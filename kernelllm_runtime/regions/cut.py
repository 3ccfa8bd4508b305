"""Cuts a captured graph into regions: from one library operation to the next.

An operation's level is how many operations of the library lie before it on the longest way. Operations of one level
that a kernel may fuse and that hang together are a region. No way from a region leads back into it, since each way out
passes an operation of the library; so regions can run one level after the other. Views belong to whoever reads them.
Attention is a region of its own, with the copies that lay out its result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from kernelllm_runtime.regions.attention import attention_in
from kernelllm_runtime.regions.in_place import out_of_place
from kernelllm_runtime.regions.kinds import Kind, is_batched, kinds_of, memory_of, value_of

LAST = 1 << 30
"""The level of a graph's output."""


@dataclass(frozen=True)
class Region:
    """Part of a graph."""

    nodes: tuple[Node, ...]
    """With the views that it reads through, in the graph's order."""
    inputs: tuple[Node, ...]
    """No views, in the order in which they are read."""
    outputs: tuple[Node, ...]
    """No views; at least one."""
    level: int
    call: Node | None = None
    """The operation of the library that is part of it, in whose place it runs; None if there is none."""


@dataclass(frozen=True)
class Cut:
    """A graph with its regions."""

    regions: tuple[Region, ...]
    levels: dict[Node, int]
    """When each node runs: regions first, in each level."""
    views: frozenset[Node] = frozenset()


def cut(module: GraphModule) -> Cut:
    """Cuts a graph whose nodes carry Dynamo's tensors without data.

    Where the graph changes a tensor of its own in place, it is rewritten to make a new one.
    """
    if not _switches(module):  # in which a new tensor may have another dtype than one that is changed
        out_of_place(module)
    kinds = kinds_of(module)
    bases: dict[Node, Node] = {}
    for node in module.graph.nodes:
        base = kinds[node].base
        bases[node] = node if base is None else bases[base]
    changed = {bases[each] for kind in kinds.values() for each in kind.writes}
    memory = {memory_of(value_of(each)) for each in changed} - {None}  # several arguments may share it
    changed |= {node for node in bases.values() if memory_of(value_of(node)) in memory}
    fusable = {
        node
        for node, kind in kinds.items()
        if kind.sort in ("copy", "fusable")
        and not any(bases[each] in changed for each in (node, *node.all_input_nodes))
    }
    levels = _levels(module, kinds, bases, fusable, changed)
    groups = _groups(module, bases, fusable, levels)
    attention = attention_in(module, kinds, bases, groups, changed)
    inside = {node for nodes in attention.values() for node in nodes}
    for call, nodes in attention.items():
        # Its copies run where it does, with the views that they read: regions of the next level may read them.
        for node in nodes[nodes.index(call) + 1 :]:
            levels |= dict.fromkeys((node, *_views_of(node, kinds)), levels[call])
    rest = _groups(module, bases, fusable - inside, levels)
    found = [_region(group, kinds, levels) for group in rest]
    found += [_region(nodes, kinds, levels, call) for call, nodes in attention.items()]
    regions = tuple(filter(None, found))
    return Cut(regions, levels, frozenset(node for node, base in bases.items() if base is not node))


def _switches(module: GraphModule) -> set[Node]:
    """Nodes that change how torch computes, such as the begin and the end of autocast; not where that is only ever disabled."""
    named = [(getattr(node.target, "__name__", ""), node) for node in module.graph.nodes]
    found = {node for name, node in named if _is_switch(name, node)}
    if any(name == "_enter_autocast" and node.args[2:3] != (False,) for name, node in named):
        found |= {node for name, node in named if name in ("_enter_autocast", "_exit_autocast")}
    return found


def _is_switch(name: str, node: Node) -> bool:
    """Whether a node reads no tensor and gives none, as the choice of a library for attention. Whether gradients are wanted is the
    same for the whole example."""
    around = (node, *node.all_input_nodes)
    silent = node.op == "call_function" and all(value_of(each) is None for each in around)
    return silent and name not in ("_enter_autocast", "_exit_autocast", "_set_grad_enabled")


def _levels(
    module: GraphModule,
    kinds: dict[Node, Kind],
    bases: dict[Node, Node],
    fusable: set[Node],
    changed: set[Node],
) -> dict[Node, int]:
    """When each node runs. What touches memory that is changed in place keeps its order, and so does all else without a result.

    Nothing passes the begin or the end of autocast.
    """
    runs: dict[Node, int] = {}
    gives: dict[Node, int] = {}
    switches = _switches(module)
    start, floor = 0, -1
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            runs[node], gives[node] = -1, 0
            continue
        if node in switches:
            start = max(runs.values(), default=0) + 1
        here = max((gives[each] for each in node.all_input_nodes), default=0)
        here = max(here, start)
        around = (node, *node.all_input_nodes)
        ordered = any(bases[each] in changed or is_batched(value_of(each)) for each in around) or (
            node.op != "output" and value_of(node) is None
        )
        if ordered:
            here = floor = max(here, floor)
        stays = node not in fusable and kinds[node].sort != "view"
        runs[node] = LAST if node.op == "output" else here
        gives[node] = here + 1 if stays else here
    return runs


def _groups(
    module: GraphModule, bases: dict[Node, Node], fusable: set[Node], levels: dict[Node, int]
) -> list[list[Node]]:
    """The fusable nodes that hang together, of one level."""
    leader: dict[Node, Node] = {node: node for node in fusable}

    def find(node: Node) -> Node:
        while leader[node] is not node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for node in module.graph.nodes:
        if node in fusable:
            for each in node.all_input_nodes:
                base = bases[each]
                if base in fusable and levels[base] == levels[node]:
                    leader[find(node)] = find(base)
    groups: defaultdict[Node, list[Node]] = defaultdict(list)
    for node in module.graph.nodes:
        if node in fusable:
            groups[find(node)].append(node)
    return list(groups.values())


def _views_of(node: Node, kinds: dict[Node, Kind]) -> Iterator[Node]:
    """The views through which a node reads."""
    for each in node.all_input_nodes:
        if kinds[each].base is not None:
            yield each
            yield from _views_of(each, kinds)


def _region(
    group: Sequence[Node], kinds: dict[Node, Kind], levels: dict[Node, int], call: Node | None = None
) -> Region | None:
    inside = set(group)
    nodes: dict[Node, None] = {}
    inputs: dict[Node, None] = {}

    def read(node: Node) -> None:
        """Takes in the views on the way from a node to its base, the base first."""
        base = kinds[node].base
        if base is not None:
            for each in node.all_input_nodes:
                read(each)
            nodes[node] = None
        elif node not in inside:
            inputs[node] = None

    for node in group:
        for each in node.all_input_nodes:
            read(each)
        nodes[node] = None
    outputs = tuple(node for node in group if _is_read_outside(node, inside, kinds))
    if (
        not inputs
        or not outputs
        or not all(isinstance(value_of(each), torch.Tensor) for each in (*inputs, *outputs))
    ):
        return None
    return Region(tuple(nodes), tuple(inputs), outputs, levels[call or group[0]], call)


def _is_read_outside(node: Node, inside: set[Node], kinds: dict[Node, Kind]) -> bool:
    if kinds[node].sort in ("copy", "fusable") and not isinstance(value_of(node), torch.Tensor):
        return False  # its parts are
    waiting: list[Node] = list(node.users)
    while waiting:
        user = waiting.pop()
        if kinds[user].base is not None:
            waiting += user.users
        elif user not in inside:
            return True
    return False
