"""The interface of a special form: what it is for, how it changes a traced graph, and how Inductor's text of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Node

from kernelllm_judge.core.records import Domain
from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.variants import Variant

aten = torch.ops.aten

TF32_PAYS = 4
"""Above so many times the rate of float32, three products in TF32 are faster than one in float32."""


@dataclass(frozen=True)
class Traced:
    """One case of a target, as traced, and the GPU that kernels are for."""

    graph: Graph
    domain: Domain
    gpu: Gpu


class Form:
    """A special form. Its docstring has the evidence: where it won, over ``torch.compile`` on an H200 unless it says otherwise.

    A form stays if it wins at least 5 % on five problems of KernelBench, or on a layer of a whole model.
    """

    name: ClassVar[str]
    early: ClassVar[bool] = False
    """Whether it changes a graph before Inductor's own passes, which simplify what it writes."""

    def matches(self, traced: Traced) -> bool:
        """Whether a case computes what the form is for."""
        raise NotImplementedError

    def writes(self, graph: GraphModule, gpu: Gpu, variant: Variant) -> None:
        """Changes a graph with fake tensors, in place, before Inductor writes it."""

    def finishes(self, source: str, domain: Domain, variant: Variant) -> str:
        """Returns Inductor's text with what only the text can be changed in."""
        return source


class Writer:
    """Adds operations to a graph where nodes are inserted at present, with the tensors that they return."""

    def __init__(self, graph: Graph) -> None:
        """``graph``: has fake tensors."""
        self.graph = graph

    def __call__(self, operation: Any, *args: Any, **options: Any) -> Node:
        """Adds one operation."""
        node = self.graph.call_function(operation, args, options)
        values = torch.fx.map_arg(args, lambda argument: argument.meta["val"])
        tensors = [value for value in values if isinstance(value, FakeTensor)]
        with tensors[0].fake_mode:
            node.meta["val"] = operation(*values, **options)
        return node


def rewrite(
    graph: GraphModule, operations: Iterable[Any], replacement: Callable[[Writer, Node], Node | None]
) -> None:
    """Replaces the nodes of some operations, except where the replacement is None."""
    for operation in operations:
        for node in graph.graph.find_nodes(op="call_function", target=operation):
            with graph.graph.inserting_before(node):
                result = replacement(Writer(graph.graph), node)
            if result is not None:
                node.replace_all_uses_with(result)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def convolutions(graph: Graph) -> list[Node]:
    """Returns the convolutions in a graph, transposed ones included."""
    return list(graph.find_nodes(op="call_function", target=aten.convolution.default))


def convolution_arguments(node: Node) -> list[Any]:
    """Returns input, weight, bias, strides, padding, dilation, whether it is transposed, output padding and groups."""
    return list(cast(Any, node.args))


def with_two_dimensions(write: Writer, node: Node) -> tuple[bool, list[Any]]:
    """Returns whether a convolution has one dimension, and its arguments; one dimension gets another of size 1."""
    x, weight, bias, strides, padding, dilation, transposed, more, groups = convolution_arguments(node)
    one = len(strides) == 1
    if one:
        x, weight = write(aten.unsqueeze.default, x, 2), write(aten.unsqueeze.default, weight, 2)
        strides, padding, dilation, more = [1, *strides], [0, *padding], [1, *dilation], [0, *more]
    return one, [x, weight, bias, strides, padding, dilation, transposed, more, groups]


def laid_out_as(write: Writer, node: Node, result: Node, one: bool) -> Node:
    """Returns a convolution's result in the order of the original's, without the dimension that was added to ``one``."""
    if result.meta["val"].stride()[-1] != 1 and node.meta["val"].is_contiguous():
        result = write(aten.clone.default, result, memory_format=torch.contiguous_format)
    return write(aten.squeeze.dim, result, 2) if one else result
