"""Traces a module together with its gradients, as the joint graph of AOTAutograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind
from torch.fx.graph import CodeGen
from torch.utils import _pytree as pytree

from pytest_kernelllm.generate.inductor.library import decompositions
from pytest_kernelllm.generate.inductor.literals import NumbersAsOperations
from pytest_kernelllm.generate.inductor.trace import (
    TraceError,
    exported_program,
    first_line,
    one_precision,
    program_arguments,
    program_output,
    quiet,
    refuse_randomness,
)


@dataclass(frozen=True)
class Joint:
    """A module and its gradients as one graph of ATen operations, for one call."""

    graph: torch.fx.GraphModule
    """Takes the arguments and then the gradients of outputs; returns the outputs and then a gradient, or None, for
    each argument."""
    arguments: tuple[str, ...]
    """The value of each argument: ``self.fc.weight`` or an expression over forward's parameters."""
    output: Any
    """See ``render.sections.Section``."""
    outputs: int
    """The number of tensors that the module returns."""
    differentiable: tuple[int, ...]
    """The outputs that have gradients, in the order of the graph's inputs for them."""


class _Taken(BaseException):
    """Stops AOTAutograd once the joint graph exists; a BaseException, so that nothing catches it."""


def export_joint(
    module: nn.Module,
    parameters: Sequence[str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic: dict[str, Any] | None = None,
) -> Joint:
    """Traces a module and its gradients by every floating input and every trainable parameter.

    ``torch.export`` says what the module reads and which sizes are free. The module itself is traced once more by
    AOTAutograd, because an exported program no longer has the user's own autograd functions and ``no_grad`` blocks.

    The arguments are those of ``trace.export``.
    """
    with quiet(), one_precision():
        program = exported_program(module, args, kwargs, dynamic)
        if any("scaled_dot_product_attention" in str(node.target) for node in program.graph.nodes):
            raise TraceError("attention keeps PyTorch's own backward pass, so no kernels are written for it")
        arguments = program_arguments(program, parameters)
        output = program_output(program)
        try:
            return _traced(module, program, arguments, output)
        except TraceError:
            raise
        except Exception as error:  # AOTAutograd raises many kinds
            raise TraceError(f"AOTAutograd cannot trace its gradients ({first_line(error)})") from error


def _traced(
    module: nn.Module, program: torch.export.ExportedProgram, arguments: tuple[str, ...], output: Any
) -> Joint:
    from torch._functorch.aot_autograd import aot_function

    specs = program.graph_signature.input_specs
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
    owned = {InputKind.PARAMETER, InputKind.BUFFER}
    named = module.named_parameters(remove_duplicate=False)
    trainable = {name for name, parameter in named if parameter.requires_grad}
    places = [place for place, value in enumerate(values) if isinstance(value, torch.Tensor)]
    structure = program.call_spec.in_spec
    assert structure is not None
    returned: list[list[bool]] = []
    taken: list[tuple[torch.fx.GraphModule, int]] = []

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = {**dict(enumerate(values)), **dict(zip(places, tensors, strict=True))}
        state = {str(s.target): given[i] for i, s in enumerate(specs) if s.kind in owned}
        leaves = [given[i] for i, s in enumerate(specs) if s.kind not in owned]
        args, kwargs = pytree.tree_unflatten(leaves, structure)
        with NumbersAsOperations():
            found = torch.func.functional_call(module, state, args, kwargs, tie_weights=False)
        results = [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        returned.append([leaf.requires_grad for leaf in results])
        return results

    def take(joint: torch.fx.GraphModule, _: Any, *, num_fwd_outputs: int, **__: Any) -> Any:
        taken.append((joint, num_fwd_outputs))
        raise _Taken

    sources = [_source(values[place], specs[place], trainable) for place in places]
    try:
        with torch.enable_grad():
            aot_function(call, lambda graph, _: graph, partition_fn=take, decompositions=decompositions())(
                *sources
            )
    except _Taken:
        pass
    if not taken:
        raise TraceError("no output depends on an input or parameter in a way that autograd can follow")
    graph, outputs = taken[0]
    # Without the structure of arguments, which PyTorch cannot copy quietly.
    graph.graph.set_codegen(CodeGen())
    differentiable = tuple(number for number, needs in enumerate(returned[0]) if needs)
    refuse_randomness(graph.graph)
    _refuse_aliases(graph.graph, outputs, len(returned[0]))
    given = tuple(arguments[place] for place in places)
    return Joint(graph, given, output, outputs, differentiable)


def _source(value: FakeTensor, spec: Any, trainable: set[str]) -> torch.Tensor:
    """Returns a tensor without data like ``value``, which requires gradients if it is an input or a trainable parameter."""
    with value.fake_mode:
        source = torch.empty_like(value)
    differentiable = spec.kind is InputKind.USER_INPUT or (
        spec.kind is InputKind.PARAMETER and spec.target in trainable
    )
    return source.requires_grad_(differentiable and value.is_floating_point())


def _refuse_aliases(graph: torch.fx.Graph, outputs: int, returned: int) -> None:
    """Refuses a module that changes a tensor in place or returns a view, which an autograd function cannot."""
    results = graph.find_nodes(op="output")[0].args[0][:outputs]
    if outputs != returned:
        raise TraceError("it changes an input or buffer in place, or returns views of one tensor")
    for node in results:
        while node.op == "call_function" and getattr(node.target, "is_view", False):
            node = node.args[0]
        if node.op == "placeholder":
            raise TraceError("it returns an input or a view of it")
