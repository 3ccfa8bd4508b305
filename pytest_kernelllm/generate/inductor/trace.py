"""TorchInductor's Triton for one module and one call, taken on any machine, with or without a GPU.

The module is exported on CPU, then goes through Inductor's Triton backend up to the point at which the output
code exists; nothing is compiled or run. Every private piece of torch that this needs is in this file.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch._inductor.config as inductor_config
from torch import nn
from torch._inductor.graph import GraphLowering
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from pytest_kernelllm.generate.inductor.library import decompositions, drops_out, keep_strides

MULTIPROCESSORS = 132
"""Streaming multiprocessors of the GPU that is written for (H100, H200): decides how reductions are split."""


class TraceError(RuntimeError):
    """A module cannot be captured; the text says why in one line."""


@dataclass(frozen=True)
class Exported:
    """A module as a graph of ATen operations, for one call."""

    graph: torch.fx.GraphModule
    arguments: tuple[str, ...]
    """What each input of the graph is: ``self.fc.weight``, or an expression over forward's parameters."""
    output: Any
    """See ``render.sections.Section``."""


class _Finished(BaseException):
    """Stops Inductor once the output code exists; not an Exception, so that no fallback swallows it."""


class _NoGpuDriver:
    """Answers the few questions that Inductor's code generation asks of Triton's active driver."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


@contextlib.contextmanager
def _as_if_gpu(taken: list[str], config: Mapping[str, Any]) -> Iterator[None]:
    """Inductor writes Triton for CPU tensors, for the same imagined GPU on every machine."""
    import triton
    from torch._dynamo.device_interface import CpuInterface
    from torch._inductor.runtime.hints import DeviceProperties

    def take(graph: Any, *_: Any, **__: Any) -> None:
        code = graph.codegen()[0]
        taken.append(getattr(code, "value", code))
        raise _Finished

    class Properties:
        multi_processor_count = MULTIPROCESSORS
        max_threads_per_block = 1024
        warp_size = 32

    wanted = {
        "cpu_backend": "triton",
        "fx_graph_cache": False,
        "fx_graph_remote_cache": False,
        "layout_optimization": False,
        "assert_indirect_indexing": False,
        "alignment_asserts": False,
        "comment_origin": False,
        "compile_threads": 1,
        "triton.mix_order_reduction": False,
        "triton.cooperative_reductions": False,
        **config,
    }
    # Only what this version of torch knows; the rest is a refinement.
    known = {key: value for key, value in wanted.items() if _has(inductor_config, key)}
    create = DeviceProperties.create
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelllm-inductor-"))
        stack.enter_context(mock.patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": scratch}))
        stack.enter_context(inductor_config.patch(known))
        for name in ("compile_to_module", "_compile_to_module"):
            if hasattr(GraphLowering, name):
                stack.enter_context(mock.patch.object(GraphLowering, name, take))
        stack.enter_context(
            mock.patch.object(
                CpuInterface.Worker, "get_device_properties", staticmethod(lambda _=None: Properties())
            )
        )
        # Not through set_active and reset_active: the latter looks for a real driver.
        stack.enter_context(mock.patch.object(triton.runtime.driver, "_active", _NoGpuDriver()))
        create.cache_clear()
        stack.callback(create.cache_clear)
        yield


def _has(root: Any, path: str) -> bool:
    """Whether ``root`` has the dotted attribute ``path``."""
    for part in path.split("."):
        if not hasattr(root, part):
            return False
        root = getattr(root, part)
    return True


def export(
    module: nn.Module,
    parameters: Sequence[str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic: dict[str, Any] | None = None,
) -> Exported:
    """One module for one call.

    Args:
        module: on CPU, in the mode (train or eval) that is wanted.
        parameters: names of ``forward``'s parameters without ``self``, in order.
        args: positional arguments of ``forward``, tensors on CPU.
        kwargs: keyword arguments of ``forward``.
        dynamic: by parameter name what ``torch.export`` takes as dynamic shapes; None: every size is fixed.

    Raises:
        TraceError: not exportable, or of a kind that no kernel module can express.
    """
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(module, args, dict(kwargs), dynamic_shapes=dynamic, strict=False)
            program = program.run_decompositions(decompositions())
        except Exception as error:  # torch.export raises many kinds
            raise TraceError(f"torch.export cannot trace it ({_first_line(error)})") from error
        _refuse_randomness(program.graph)
        keep_strides(program.graph)
        arguments = _arguments(program, parameters)
        output = _output(program)
        return Exported(program.graph_module, arguments, output)


def _refuse_randomness(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) or drops_out(node):
            raise TraceError(f"it draws random numbers ({node.target})")


def _first_line(error: BaseException) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    return next((line.rstrip(".:") for line in lines if line), type(error).__name__)[:200]


def _arguments(program: torch.export.ExportedProgram, parameters: Sequence[str]) -> tuple[str, ...]:
    """For each input of the graph the expression over ``self`` and forward's parameters that gives it."""
    specs = program.graph_signature.input_specs
    given = iter(_input_paths(program, parameters))
    names = []
    for spec in specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            names.append(f"self.{spec.target}")
        elif spec.kind is InputKind.USER_INPUT:
            names.append(next(given))
        else:
            raise TraceError(f"it uses `{spec.target}`, a tensor that is neither a parameter nor a buffer")
    return tuple(names)


def _input_paths(program: torch.export.ExportedProgram, parameters: Sequence[str]) -> list[str]:
    """``x``, ``position_embeddings[0]``…: one for each leaf of the arguments, in the graph's order."""
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


def _output(program: torch.export.ExportedProgram) -> Any:
    """The outputs' structure; the graph is changed to return its tensors only."""
    node = next(iter(reversed(program.graph.nodes)))
    tensors: list[torch.fx.Node] = []
    leaves: list[Any] = []
    for spec, value in zip(program.graph_signature.output_specs, node.args[0], strict=True):
        if spec.kind is not OutputKind.USER_OUTPUT:
            raise TraceError(f"it changes `{spec.target}` in place")
        if isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor):
            leaves.append({"tensor": len(tensors)})
            tensors.append(value)
        elif isinstance(value, torch.fx.Node):
            raise TraceError("it returns a number that depends on its inputs")
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
    raise TraceError(f"it returns a {kind}; only tensors, tuples, lists and dicts can be rebuilt")


def _children(spec: Any) -> Any:
    children = getattr(spec, "children_specs", None)
    return spec.children() if children is None else children


def lower(exported: Exported, config: Mapping[str, Any]) -> str:
    """TorchInductor's output code for an exported module.

    Args:
        exported: stays as it is.
        config: TorchInductor options beside the usual ones.

    Raises:
        TraceError: TorchInductor cannot compile it.
    """
    from torch._guards import TracingContext, detect_fake_mode, tracing

    with warnings.catch_warnings():  # Inductor imports modules that torch itself has deprecated
        warnings.simplefilter("ignore")
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._inductor.virtualized import V

    inputs = [node.meta["val"] for node in exported.graph.graph.nodes if node.op == "placeholder"]
    mode = detect_fake_mode(inputs)
    environment = mode.shape_env if mode is not None else None
    guards = len(environment.guards) if environment is not None else 0
    taken: list[str] = []
    try:
        with torch.no_grad(), _as_if_gpu(taken, config), tracing(TracingContext(mode)), V.set_fake_mode(mode):
            compile_fx_inner(_simplified(exported), inputs)
    except _Finished:
        pass
    except Exception as error:
        if not taken:  # Inductor may wrap what stopped it
            raise TraceError(f"TorchInductor cannot compile it ({_first_line(error)})") from error
    if environment is not None and len(environment.guards) > guards:
        raise TraceError("TorchInductor's code for it holds for some sizes only")
    if not taken:
        raise TraceError("TorchInductor wrote no code for it")
    return _essential(taken[-1])


def _simplified(exported: Exported) -> torch.fx.GraphModule:
    """A copy of the graph after the passes that TorchInductor applies before it lowers a graph."""
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes

    graph = torch.fx.GraphModule(exported.graph, copy.deepcopy(exported.graph.graph))
    joint_graph_passes(graph)
    if any("scaled_dot_product" in str(node.target) for node in graph.graph.nodes):
        # A pattern took matrix products around a softmax for attention, and made it the CPU's.
        graph = torch.fx.GraphModule(exported.graph, copy.deepcopy(exported.graph.graph))
        with inductor_config.patch(pattern_matcher=False):
            joint_graph_passes(graph)
    return graph


def _essential(source: str) -> str:
    """The output code without what differs between machines and what only serves Inductor's own benchmark."""
    source = source.partition("\nrunner = Runner(")[0].partition("\ndef benchmark_compiled_module")[0]
    source = re.sub(r"'backend_hash': '\w*', ", "", source)
    lines = (line for line in source.splitlines() if not line.lstrip().startswith("#"))
    return "\n".join(lines).strip("\n") + "\n"
