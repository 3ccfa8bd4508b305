"""Gets TorchInductor's Triton code for an exported module on any machine, with or without a GPU.

The graph goes through Inductor's Triton backend until the output code exists; nothing is compiled or run.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch._inductor.graph import GraphLowering

from pytest_kernelllm.generate.inductor.trace import Exported, TraceError, first_line

MULTIPROCESSORS = 132
"""The number of streaming multiprocessors of an H100 or H200, by which Inductor splits reductions."""


def lower(exported: Exported, config: Mapping[str, Any]) -> str:
    """Returns TorchInductor's output code for an exported module.

    Args:
        exported: the module; not changed.
        config: TorchInductor options besides the usual ones.

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
        if not taken:  # Inductor may wrap _Finished in another exception
            raise TraceError(f"TorchInductor cannot compile it ({first_line(error)})") from error
    if environment is not None and len(environment.guards) > guards:
        raise TraceError("TorchInductor's code for it holds for some sizes only")
    if not taken:  # no code is written for a graph without operations
        raise TraceError("it computes nothing: what it returns are views of its inputs and weights")
    return _essential(taken[-1])


class _Finished(BaseException):
    """Stops Inductor once the output code exists; a BaseException, so that no fallback catches it."""


class _NoGpuDriver:
    """Replaces Triton's active driver for Inductor's code generation."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


@contextlib.contextmanager
def _as_if_gpu(taken: list[str], config: Mapping[str, Any]) -> Iterator[None]:
    """Makes Inductor write Triton for CPU tensors, as for the same GPU on every machine."""
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

    options = {
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
    # Options that this version of torch lacks are left out.
    known = {key: value for key, value in options.items() if _has(inductor_config, key)}
    create = DeviceProperties.create
    properties = staticmethod(lambda _=None: Properties())
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelllm-inductor-"))
        stack.enter_context(_environment("TORCHINDUCTOR_CACHE_DIR", scratch))
        stack.enter_context(inductor_config.patch(known))
        for name in ("compile_to_module", "_compile_to_module"):
            if hasattr(GraphLowering, name):
                stack.enter_context(_replaced(GraphLowering, name, take))
        stack.enter_context(_replaced(CpuInterface.Worker, "get_device_properties", properties))
        # Not through set_active and reset_active: the latter looks for a real driver.
        stack.enter_context(_replaced(triton.runtime.driver, "_active", _NoGpuDriver()))
        create.cache_clear()
        stack.callback(create.cache_clear)
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Sets ``owner.name`` to ``value`` inside the block."""
    own = vars(owner)
    was_own, before = name in own, own.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if was_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Sets the environment variable ``name`` to ``value`` inside the block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _has(root: Any, path: str) -> bool:
    """Whether ``root`` has the dotted attribute ``path``."""
    for part in path.split("."):
        if not hasattr(root, part):
            return False
        root = getattr(root, part)
    return True


def _simplified(exported: Exported) -> torch.fx.GraphModule:
    """Copies the graph and applies the passes that TorchInductor runs before it lowers a graph."""
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes

    graph = torch.fx.GraphModule(exported.graph, copy.deepcopy(exported.graph.graph))
    joint_graph_passes(graph)
    if any("scaled_dot_product" in str(node.target) for node in graph.graph.nodes):
        # A pattern replaced matrix products around a softmax by the CPU's attention.
        graph = torch.fx.GraphModule(exported.graph, copy.deepcopy(exported.graph.graph))
        with inductor_config.patch(pattern_matcher=False):
            joint_graph_passes(graph)
    return graph


def _essential(source: str) -> str:
    """Removes from the output code what differs between machines and what only Inductor's benchmark needs."""
    source = source.partition("\nrunner = Runner(")[0].partition("\ndef benchmark_compiled_module")[0]
    source = re.sub(r"'backend_hash': '\w*', ", "", source)
    lines = (line for line in source.splitlines() if not line.lstrip().startswith("#"))
    return "\n".join(lines).strip("\n") + "\n"
