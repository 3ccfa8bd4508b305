"""Exports a module for one call as a graph of ATen operations, on the CPU, with or without a GPU in the machine.

What cannot be traced, lowered or expressed is a ``TraceError``, here and in the modules beside.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols
from torch.utils import _pytree as pytree

from kernelllm_judge.core.shorten import whole
from kernelllm_runtime.leaves import parameter_of
from kernelllm_runtime.pins.settings import TF32
from pytest_kernelllm.generate.inductor.library import attention_in_order, decomposed, drops_out, keep_strides
from pytest_kernelllm.generate.inductor.literals import NumbersAsOperations

MOST_STEPS = 128
"""Steps of a recurrence, of all its layers and directions together, that a kernel module takes one by one."""

_RECURRENT = tuple(getattr(torch.ops.aten, name).input for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"))
_OUTSIDE = "it uses a tensor that is neither a parameter nor a buffer (`register_buffer` makes it one)"


class TraceError(RuntimeError):
    """Raised if a module cannot be captured; one line says why."""

    def __init__(self, message: str, node: torch.fx.Node | None = None) -> None:
        """``node`` is the operation that is to blame, if there is one."""
        super().__init__(message)
        self.node = node


@dataclass(frozen=True)
class Exported:
    """A module as a graph of ATen operations, for one call."""

    graph: torch.fx.GraphModule
    arguments: tuple[str, ...]
    """The value of each input of the graph: ``self.fc.weight`` or an expression over forward's parameters."""
    output: Any
    """See ``render.sections.Section``."""


def export(
    module: nn.Module,
    parameters: Sequence[str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic: dict[str, Any] | None = None,
) -> Exported:
    """Exports a module for one call.

    Args:
        module: the module on the CPU, in train or eval mode.
        parameters: the names of ``forward``'s parameters without ``self``, in order.
        args: the positional arguments of ``forward``, with tensors on the CPU.
        kwargs: the keyword arguments of ``forward``.
        dynamic: the dynamic shapes for ``torch.export`` by parameter name; None if every size is fixed.
    """
    with quiet(), one_precision():
        program = exported_program(module, args, kwargs, dynamic)
        try:
            with torch.no_grad():
                program = decomposed(program)
        except Exception as error:  # torch.export raises many kinds
            raise TraceError(f"torch.export cannot trace it ({_reason(error)})") from error
        refuse_randomness(program.graph)
        keep_strides(program.graph)
        arguments = program_arguments(program, parameters)
        output = program_output(program)
        return Exported(program.graph_module, arguments, output)


@contextlib.contextmanager
def one_precision() -> Iterator[None]:
    """Gives cuDNN's convolutions and recurrent layers one setting of TF32 while the block runs, if they have several.

    ``torch.export`` asks whether TF32 is allowed in cuDNN, to which PyTorch has no answer then. What is traced does not depend on it.
    """
    cudnn = cast(Any, torch.backends.cudnn)
    before = cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision
    try:
        _ = cudnn.allow_tf32
    except RuntimeError:
        cudnn.conv.fp32_precision = cudnn.rnn.fp32_precision = TF32
    try:
        yield
    finally:
        if before != (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision):
            cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = before


def exported_program(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: dict[str, Any] | None
) -> torch.export.ExportedProgram:
    """Exports a module for one call, not decomposed; see ``export``."""
    try:
        with torch.no_grad(), attention_in_order(), NumbersAsOperations():
            program = torch.export.export(module, args, dict(kwargs), dynamic_shapes=dynamic, strict=False)
    except Exception as error:  # torch.export raises many kinds
        if "doesn't match mode" in str(error):  # the module was built without data, the tensor with it
            raise TraceError(_OUTSIDE) from error
        raise TraceError(f"torch.export cannot trace it ({_reason(error)})") from error
    _refuse_draws(program.graph)  # before decomposing, which takes minutes for a long LSTM
    _refuse_data_dependence(program.graph)
    _refuse_long_recurrences(program.graph)
    return program


def _refuse_draws(graph: torch.fx.Graph) -> None:
    """Refuses operations that make random tensors; those that change one, such as dropout, may be switched off."""
    for node in graph.nodes:
        if _is_random(node) and not node.all_input_nodes:
            raise TraceError(f"it draws random numbers ({node.target})", node)


def _refuse_data_dependence(graph: torch.fx.Graph) -> None:
    """Refuses operations whose result is a number, or has a shape, that only their data tells."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and free_unbacked_symbols(value):
            what = "the shape of what" if isinstance(value, torch.Tensor) else ""
            gives = "gives depends" if what else "gives a number that depends"
            raise TraceError(f"{what} `{node.target}` {gives} on values of its tensors".strip(), node)


def _refuse_long_recurrences(graph: torch.fx.Graph) -> None:
    """Refuses an LSTM, GRU or RNN of many steps: each would be launches of its own, where the library needs one call."""
    for node in graph.nodes:
        if node.target in _RECURRENT:
            x, _, _, _, layers, _, _, both_directions, batch_first = node.args
            length = x.meta["val"].shape[1 if batch_first else 0]
            steps = length * layers * (2 if both_directions else 1)
            if isinstance(steps, int) and steps > MOST_STEPS:
                raise TraceError(
                    f"`{node.target}` runs {steps} steps; more than {MOST_STEPS} stay with the library", node
                )


def refuse_randomness(graph: torch.fx.Graph) -> None:
    """Raises ``TraceError`` if a graph draws random numbers."""
    for node in graph.nodes:
        if drops_out(node):
            raise TraceError("it draws random numbers (dropout in attention)", node)
        if _is_random(node):
            raise TraceError(f"it draws random numbers ({node.target})", node)


def _is_random(node: torch.fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what torch.export logs off the terminal; the reason is in ``TraceError``."""
    logger = logging.getLogger("torch")
    level = logger.level
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            logger.setLevel(level)


def _reason(error: Exception) -> str:
    """Says why torch.export failed."""
    if isinstance(error, GuardOnDataDependentSymNode):
        return "what it does depends on values of its tensors"
    if isinstance(error, DataDependentOutputException):
        return f"`{error.func}` gives a number that depends on values of its tensors"
    if isinstance(error, DynamicOutputShapeException):
        return f"the shape of what `{error.func}` gives depends on values of its tensors"
    if isinstance(error, SyntaxError):  # of the code that it writes
        return "a part of the module has a name that it cannot write"
    return first_line(error)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's text, shortened, without its full stop."""
    lines = (line.strip() for line in str(error).splitlines())
    return whole(next((line.rstrip(".:") for line in lines if line), type(error).__name__), 200)


def program_arguments(program: torch.export.ExportedProgram, parameters: Sequence[str]) -> tuple[str, ...]:
    """Returns the expression over ``self`` and forward's parameters for each input of the graph."""
    specs = program.graph_signature.input_specs
    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    given = iter(_input_paths(program, parameters))
    names = []
    for spec, node in zip(specs, inputs, strict=True):
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            names.append(f"self.{spec.target}")
        elif spec.kind is InputKind.USER_INPUT:
            names.append(path := next(given))
            if parameter_of(path) not in parameters and node.users:
                raise TraceError(f"it computes with `{path}`, which is no parameter of forward", node)
        else:
            raise TraceError(_OUTSIDE, node)
    return tuple(names)


def _input_paths(program: torch.export.ExportedProgram, parameters: Sequence[str]) -> list[str]:
    """Returns an expression such as ``position_embeddings[0]`` for each leaf of the arguments, in the graph's order."""
    spec = program.call_spec.in_spec
    assert spec is not None
    args, kwargs = pytree.tree_unflatten(range(spec.num_leaves), spec)
    given = {**dict(zip(parameters, args, strict=False)), **kwargs}
    names = {leaf: name for parameter, value in given.items() for leaf, name in _leaves(value, parameter)}
    return [names[leaf] for leaf in range(spec.num_leaves)]


def _leaves(value: Any, path: str) -> Iterator[tuple[int, str]]:
    if isinstance(value, int):
        yield value, path
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{path}[{key!r}]")
    elif isinstance(value, tuple | list):
        for index, part in enumerate(value):
            yield from _leaves(part, f"{path}[{index}]")
    elif value is not None:
        raise TraceError(
            f"its argument `{path}` is a {type(value).__name__}, not a tensor, tuple, list or dict"
        )


def program_output(program: torch.export.ExportedProgram) -> Any:
    """Returns the structure of the outputs, and changes the graph to return only its tensors."""
    node = next(iter(reversed(program.graph.nodes)))
    tensors: list[torch.fx.Node] = []
    leaves: list[Any] = []
    for spec, value in zip(program.graph_signature.output_specs, node.args[0], strict=True):
        if spec.kind is not OutputKind.USER_OUTPUT:
            raise TraceError(f"it changes `{spec.target}` in place", value)
        if isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor):
            leaves.append({"tensor": len(tensors)})
            tensors.append(value)
        elif isinstance(value, torch.fx.Node):
            raise TraceError("it returns a number that depends on its inputs", value)
        else:
            leaves.append({"value": value})
    node.args = (tuple(tensors),)
    program.graph_module.recompile()
    return _structure(program.call_spec.out_spec, iter(leaves))


def _structure(spec: Any, leaves: Iterator[Any]) -> Any:
    if spec.is_leaf():
        return next(leaves)
    children = [_structure(child, leaves) for child in _children(spec)]
    if spec.type in (tuple, list):
        return {spec.type.__name__: children}
    if spec.type is dict and all(isinstance(key, str) for key in spec.context):
        return {"dict": dict(zip(spec.context, children, strict=True))}
    kind = f"{spec.type.__module__}.{spec.type.__qualname__}"
    if spec.type.__module__ == "torch.return_types":
        return {"type": kind, "tuple": children}
    raise TraceError(f"it returns a {kind}; a kernel returns plain tuples, lists and dicts of tensors")


def _children(spec: Any) -> Any:
    children = getattr(spec, "children_specs", None)
    return spec.children() if children is None else children
