"""Makes a graph compute new tensors where it changes its own ones in place, as ``ReLU(inplace=True)`` and ``x += y`` do."""

from __future__ import annotations

import inspect
import operator
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from kernelllm_runtime.regions.kinds import memory_of, value_of


@dataclass(frozen=True)
class _Call:
    """What a node calls."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def out_of_place(module: GraphModule) -> None:
    """Rewrites each call that changes a tensor of the graph's own, so that all that follows reads a new tensor.

    Arguments and weights change as before, and so does what is read through a view that was taken earlier.
    """
    order = {node: number for number, node in enumerate(module.graph.nodes)}
    memories = {node: memory_of(value_of(node)) for node in order}
    sharing: defaultdict[int | None, list[Node]] = defaultdict(list)
    for node in order:
        for memory in {memory_of(leaf) for leaf in tree_leaves(value_of(node))}:
            sharing[memory].append(node)
    made = (group[0] for memory, group in sharing.items() if memory is not None)
    names = {node: [node] for node in made if node.op.startswith("call_")}  # of one tensor, the maker's first
    for node in order:
        call = _apart(node)
        same = names.get(node.args[0]) if call and isinstance(node.args[0], Node) else None
        if call is None or same is None or memories[node] != memories[same[0]]:
            continue
        views = [each for each in sharing[memories[node]] if order[each] < order[node] and each not in same]
        value = None if _read_after(node, views, order) else _new_value(node, call)
        if value is not None:
            node.target, node.args, node.kwargs = call.target, call.args, call.kwargs
            node.meta["example_value"] = value
            for each in same:
                for user in [user for user in each.users if order[user] > order[node]]:
                    user.replace_input_with(each, node)
        same.append(node)
        names[node] = same
    module.recompile()


def _read_after(node: Node, views: list[Node], order: dict[Node, int]) -> bool:
    return any(order[user] > order[node] for view in views for user in view.users)


def _apart(node: Node) -> _Call | None:
    """The call that makes a new tensor, of a node that changes its first argument; None for other nodes."""
    target: Any = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    new: Any = None
    if node.op == "call_method":
        new = name[:-1] if name.endswith("_") and hasattr(torch.Tensor, name[:-1]) else None
    elif node.op == "call_function" and target is getattr(operator, f"__{name}__", None):
        new = getattr(operator, name[1:], None) if name.startswith("i") else None
    elif node.op == "call_function" and name.endswith("_"):
        new = getattr(torch, name[:-1], None) if target is getattr(torch, name, None) else None
    elif node.op == "call_function" and (call := _told_otherwise(node)):
        return call
    return _Call(new, node.args, dict(node.kwargs)) if new else None


def _told_otherwise(node: Node) -> _Call | None:
    """The call of a function that takes ``inplace`` and got ``True``, with ``False``."""
    target: Any = node.target
    try:
        given = inspect.signature(target).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):
        return None
    if given.arguments.get("inplace") is not True:
        return None
    given.arguments["inplace"] = False
    return _Call(target, given.args, given.kwargs)


def _new_value(node: Node, call: _Call) -> torch.Tensor | None:
    """The tensor without data that a call gives; None unless it is new and like the one that was changed."""
    before = value_of(node)
    if not isinstance(before, FakeTensor):
        return None
    function = getattr(torch.Tensor, call.target) if node.op == "call_method" else call.target
    try:
        with torch.no_grad(), before.fake_mode:
            args, kwargs = map_arg((call.args, call.kwargs), value_of)
            value = function(*args, **kwargs)
    except Exception:  # what runs on data only stays as it is
        return None
    if not isinstance(value, torch.Tensor) or memory_of(value) in map(memory_of, tree_leaves((args, kwargs))):
        return None
    alike = (value.dtype, value.shape, value.stride()) == (before.dtype, before.shape, before.stride())
    return value if alike else None
