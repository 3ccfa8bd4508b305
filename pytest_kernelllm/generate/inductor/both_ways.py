"""Gets TorchInductor's code for a module's forward and backward pass, divided as ``torch.compile`` divides them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.render.inductor.sections import BACKWARD, Passed
from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.joint import Joint
from pytest_kernelllm.generate.inductor.lowering import Lowered, compiler, simplified
from pytest_kernelllm.generate.inductor.on_gpu import keep_output_strides, moved
from pytest_kernelllm.generate.inductor.trace import TraceError
from pytest_kernelllm.generate.inductor.variants import Variant

_PARTS = {("var_mean", 0): "var", ("var_mean", 1): "mean"}
"""Names for the results of operations that have several, by number."""


@dataclass(frozen=True)
class BothWays:
    """TorchInductor's output code of a forward and a backward pass."""

    forward: Lowered
    """Returns the outputs, and then what the backward pass needs."""
    backward: Lowered
    """Takes ``saved`` and ``incoming``; returns ``gradients``."""
    saved: tuple[Passed, ...]
    incoming: tuple[Passed, ...]
    gradients: tuple[int, ...]
    """The number of the argument of ``forward`` that each result of ``backward`` is the gradient of."""
    recomputed: tuple[str, ...]
    """The operations that the backward pass repeats."""

    @property
    def source(self) -> str:
        """Both texts in one."""
        return self.forward.source + BACKWARD + self.backward.source


def lower_both(joint: Joint, gpu: Gpu, variant: Variant, names: Mapping[str, str]) -> BothWays:
    """Returns TorchInductor's output code for both passes."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    with compiler(joint.graph, gpu, variant) as compiled:
        whole = moved(simplified(joint.graph, gpu, variant))
        inputs = [node.meta["val"] for node in _inputs(whole)]
        forward, backward = min_cut_rematerialization_partition(whole, inputs, num_fwd_outputs=joint.outputs)
        kept = {node.name: n for n, node in enumerate(_results(forward)[joint.outputs :], joint.outputs)}
        given, count = _inputs(backward), len(joint.differentiable)
        passed, tangents = given[:-count], given[-count:]
        if any(node.name not in kept for node in passed) or any(node.name in kept for node in tangents):
            raise TraceError(
                "the partitioner of this PyTorch passes tensors to the backward pass in another order"
            )
        if not all(node.meta["val"].is_contiguous() for node in tangents):
            raise TraceError("it returns a tensor whose gradient is not contiguous")
        sources = dict(zip((n.name for n in _inputs(whole)), joint.arguments, strict=False))
        there = {node.name: node for node in forward.graph.nodes}
        saved = tuple(_passed(there[node.name], kept[node.name], sources, names) for node in passed)
        incoming = tuple(
            _passed(node, number, {}, names)
            for node, number in zip(tangents, joint.differentiable, strict=True)
        )
        gradients = _only_gradients(backward)
        recomputed = _repeated(forward, backward)
        written = (
            compiled(keep_output_strides(forward), empty=True),
            compiled(keep_output_strides(backward), empty=True, is_backward=True),
        )
    return BothWays(*written, saved, incoming, gradients, recomputed)


def _inputs(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return list(graph.graph.find_nodes(op="placeholder"))


def _results(graph: torch.fx.GraphModule) -> Sequence[Any]:
    results: Sequence[Any] = graph.graph.find_nodes(op="output")[0].args[0]
    return results


def _only_gradients(backward: torch.fx.GraphModule) -> tuple[int, ...]:
    """Makes a backward graph return no None, and returns the number of the argument of each gradient left."""
    output = backward.graph.find_nodes(op="output")[0]
    results = output.args[0]
    output.args = (tuple(node for node in results if node is not None),)
    backward.recompile()
    return tuple(number for number, node in enumerate(results) if node is not None)


def _passed(node: torch.fx.Node, result: int, sources: Mapping[str, str], names: Mapping[str, str]) -> Passed:
    """Describes a value that the backward pass gets, by what it is: an argument, or an operation's result."""
    value, base = node.meta["val"], _base(node)
    if not isinstance(value, torch.Tensor):
        return Passed(names.get(str(value), "size"), result, size=True)
    name = sources.get(base.name) or _operation(base)
    shape: list[int | str] = [
        size if isinstance(size, int) else names.get(str(size), "") for size in value.shape
    ]
    known = value.is_contiguous() and "" not in shape
    spec = TensorSpec(str(value.dtype).removeprefix("torch."), tuple(shape)) if known else None
    return Passed(name, result, spec)


def _base(node: torch.fx.Node) -> torch.fx.Node:
    """Returns the node of which a node is a view."""
    while node.op == "call_function" and getattr(node.target, "is_view", False):
        node = node.all_input_nodes[0]
    return node


def _repeated(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule) -> tuple[str, ...]:
    """Returns the names of operations in both graphs, without views, conversions and constants."""
    there = {node.name for node in forward.graph.nodes}
    both = (node for node in backward.graph.nodes if node.op == "call_function" and node.name in there)
    return tuple(dict.fromkeys(_operation(node) for node in both if _computes(node)))


def _computes(node: torch.fx.Node) -> bool:
    """Whether a node is more than a view, a conversion, a constant or a size."""
    tensor = isinstance(node.meta.get("val"), torch.Tensor)
    return tensor and bool(node.all_input_nodes) and _base(node) is node and not _converts(node)


def _operation(node: torch.fx.Node) -> str:
    """Returns the name of a node's operation, such as ``rsqrt``; of a conversion, that of what it converts."""
    if node.target is operator.getitem:
        source, place = node.args
        assert isinstance(source, torch.fx.Node) and isinstance(place, int)
        return _PARTS.get((_operation(source), place), f"{_operation(source)}_{place}")
    if _converts(node) and node.all_input_nodes[0].op == "call_function":
        return _operation(_base(node.all_input_nodes[0]))
    packet = getattr(node.target, "overloadpacket", None)
    return str(getattr(packet, "__name__", node.name))


def _converts(node: torch.fx.Node) -> bool:
    return node.target is torch.ops.prims.convert_element_type.default
