"""Gets TorchInductor's Triton code for an exported module and a described GPU, which need not be in the machine.

The graph's tensors, which have no data, are moved to that GPU. It goes through Inductor as under ``torch.compile`` until the
output code exists; nothing is compiled or run.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import torch._inductor.config as inductor_config
from torch._inductor.graph import GraphLowering

from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.forms.convolutions import only_configuration
from pytest_kernelllm.generate.inductor.forms.registry import FORMS
from pytest_kernelllm.generate.inductor.heuristics import configurations
from pytest_kernelllm.generate.inductor.on_gpu import convolution_format, moved
from pytest_kernelllm.generate.inductor.templates import chosen_templates
from pytest_kernelllm.generate.inductor.trace import Exported, TraceError, first_line
from pytest_kernelllm.generate.inductor.variants import Variant


@dataclass(frozen=True)
class Lowered:
    """TorchInductor's output code."""

    source: str
    configurations: Mapping[str, Sequence[Mapping[str, int]]]
    """See ``heuristics.configurations``."""


def lower(exported: Exported, gpu: Gpu, variant: Variant) -> Lowered:
    """Returns TorchInductor's output code for an exported module."""
    with compiler(exported.graph, gpu, variant) as compiled:
        # In this order: the passes compute constants.
        return compiled(moved(simplified(exported.graph, gpu, variant)), is_inference=True)


@contextlib.contextmanager
def compiler(traced: torch.fx.GraphModule, gpu: Gpu, variant: Variant) -> Iterator[Callable[..., Lowered]]:
    """Makes TorchInductor ready for a traced graph; inside, the yielded function returns the output code of a graph.

    That function takes a graph made from the traced one, on the GPU, and the options of ``compile_fx_inner``. A graph
    that returns its inputs only is refused unless it may be ``empty``.
    """
    from torch._guards import TracingContext, detect_fake_mode, tracing

    with warnings.catch_warnings():  # Inductor imports modules that torch itself has deprecated
        warnings.simplefilter("ignore")
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._inductor.virtualized import V

    mode = detect_fake_mode(_inputs(traced))
    environment = mode.shape_env if mode is not None else None
    guards = len(environment.guards) if environment is not None else 0
    taken: list[Lowered] = []

    def compiled(graph: torch.fx.GraphModule, *, empty: bool = False, **options: Any) -> Lowered:
        taken.clear()
        try:
            compile_fx_inner(graph, _inputs(graph), **options)
        except _Finished:
            pass
        except Exception:
            if not taken:  # Inductor may wrap _Finished in another exception
                raise
        if not taken and not empty:  # no code is written for a graph without operations
            raise TraceError("it computes nothing: what it returns are views of its inputs and weights")
        return taken[-1] if taken else Lowered(_views_only(graph), {})

    try:
        with (
            torch.no_grad(),
            _as_on(gpu, taken, variant),
            chosen_templates(gpu, variant),
            tracing(TracingContext(mode)),
            V.set_fake_mode(mode),
        ):
            yield compiled
    except TraceError:
        raise
    except Exception as error:
        raise TraceError(f"TorchInductor cannot compile it ({first_line(error)})") from error
    if environment is not None and len(environment.guards) > guards:
        raise TraceError("TorchInductor's code for it holds for some sizes only")


def _inputs(graph: torch.fx.GraphModule) -> list[Any]:
    values = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    # PyTorch 2.11 refuses True and False; what they decide was decided when the module was traced.
    return [int(value) if isinstance(value, bool) else value for value in values]


def _views_only(graph: torch.fx.GraphModule) -> str:
    """Writes the output code of a graph without operations, for which Inductor writes none."""
    inputs = ", ".join(node.name for node in graph.graph.find_nodes(op="placeholder"))
    results = ", ".join(node.name for node in graph.graph.find_nodes(op="output")[0].args[0])
    return f"def call(args):\n    {inputs}, = args\n    return ({results}, )\n"


class _Finished(BaseException):
    """Stops Inductor once the output code exists; a BaseException, so that no fallback catches it."""


_OPTIONS = {
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
    "assert_indirect_indexing": False,
    "alignment_asserts": False,
    "comment_origin": False,
    "compile_threads": 1,
    "shape_padding": False,  # it would time matrix products
    "triton.mix_order_reduction": False,  # a variant asks for it
    "triton.cooperative_reductions": False,
}
"""Options of Inductor in every variant."""


@contextlib.contextmanager
def _as_on(gpu: Gpu, taken: list[Lowered], variant: Variant) -> Iterator[None]:
    """Makes Inductor write code as on ``gpu``, whatever is in the machine, and stop when it has."""
    import triton
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import scheduler
    from torch._inductor.choices import InductorChoices
    from torch._inductor.runtime.hints import DeviceProperties
    from torch._inductor.utils import is_big_gpu

    def take(graph: Any, *_: Any, **__: Any) -> None:
        code = graph.codegen()[0]
        source = getattr(code, "value", code)
        with patch.object(torch.cuda, "is_available", lambda: True):
            taken.append(Lowered(_essential(source), configurations(source)))
        raise _Finished

    # Options that this version of torch lacks are left out.
    options = {**_OPTIONS, **variant.config}
    known = {key: value for key, value in options.items() if _has(inductor_config, key)}
    properties = staticmethod(lambda _=None: gpu)
    capability = staticmethod(lambda _=None: (gpu.major, gpu.minor))
    replacements: list[tuple[Any, str, Any]] = [
        (CudaInterface, "get_device_properties", properties),
        (CudaInterface.Worker, "get_device_properties", properties),
        (CudaInterface, "get_compute_capability", staticmethod(lambda _=None: gpu.capability)),
        (CudaInterface, "is_bf16_supported", lambda *_, **__: gpu.major >= 8),
        # Or it would make tensors on a GPU that is there, in this process.
        (torch.cuda, "is_available", lambda: False),
        (torch.cuda, "get_device_properties", properties.__func__),
        (torch.cuda, "get_device_capability", capability.__func__),
        # Without CUDA in the build of PyTorch, these methods look for a driver; the operations do not.
        (torch.Tensor, "copy_", _copy),
        (torch.Tensor, "__invert__", lambda tensor: torch.ops.aten.bitwise_not.default(tensor)),
        (scheduler, "has_triton", lambda: True),
        (InductorChoices, "should_use_persistent_reduction", staticmethod(_in_one_pass(variant.longest_row))),
        (torch._C, "_conv_determine_backend_memory_format", convolution_format),
        # Not through set_active and reset_active: the latter looks for a real driver.
        (triton.runtime.driver, "_active", _Driver(gpu)),
        *(
            (GraphLowering, name, take)
            for name in ("compile_to_module", "_compile_to_module")
            if hasattr(GraphLowering, name)
        ),
    ]
    if variant.convolution_blocks is not None:
        one = only_configuration(variant.convolution_blocks)
        replacements.append((InductorChoices, "get_conv_configs", one))
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelllm-inductor-"))
        stack.enter_context(patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=scratch))
        stack.enter_context(inductor_config.patch(known))
        for owner, name, value in replacements:
            stack.enter_context(patch.object(owner, name, value, create=True))
        for cached in (DeviceProperties.create, is_big_gpu, *vars(torch.utils._triton).values()):
            if clear := getattr(cached, "cache_clear", None):
                clear()
                stack.callback(clear)
        yield


def _copy(to: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    copied: torch.Tensor = torch.ops.aten.copy_.default(to, source, non_blocking)
    return copied


def _in_one_pass(longest_row: int) -> Callable[[Any, bool], bool]:
    """Returns what decides whether a reduction reads its rows once: Inductor, except for rows that are not longer than this."""
    from torch._inductor.choices import InductorChoices
    from torch._inductor.runtime.hints import ReductionHint
    from torch._inductor.virtualized import V

    usual = InductorChoices.should_use_persistent_reduction

    def decide(features: Any, cooperative: bool) -> bool:
        inner = features.get_reduction_hint() == ReductionHint.INNER
        fits = inner and V.graph.sizevars.statically_known_leq(features.reduction_numel, longest_row)
        return bool(fits or usual(features, cooperative))

    return decide


class _Driver:
    """Replaces Triton's active driver for Inductor's code generation."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.gpu.capability, self.gpu.warp_size)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def _has(root: Any, path: str) -> bool:
    """Whether ``root`` has the dotted attribute ``path``."""
    for part in path.split("."):
        if not hasattr(root, part):
            return False
        root = getattr(root, part)
    return True


def simplified(traced: torch.fx.GraphModule, gpu: Gpu, variant: Variant) -> torch.fx.GraphModule:
    """Copies the graph, applies the passes that TorchInductor runs before it lowers a graph, and writes a variant's special
    forms."""
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes

    forms = [form for name, form in FORMS.items() if name in variant.forms]
    original = torch.fx.GraphModule(traced, copy.deepcopy(traced.graph))
    for form in forms:
        if form.early:
            form.writes(original, gpu, variant)
    graph = torch.fx.GraphModule(traced, copy.deepcopy(original.graph))
    joint_graph_passes(graph)
    if any("scaled_dot_product" in str(node.target) for node in graph.graph.nodes):
        # A pattern replaced matrix products around a softmax by the CPU's attention.
        graph = torch.fx.GraphModule(traced, original.graph)
        with inductor_config.patch(pattern_matcher=False):
            joint_graph_passes(graph)
    for form in forms:
        if not form.early:
            form.writes(graph, gpu, variant)
    return graph


def _essential(source: str) -> str:
    """Removes from the output code what differs between machines and what only Inductor's benchmark needs."""
    source = source.partition("\nrunner = Runner(")[0].partition("\ndef benchmark_compiled_module")[0]
    source = re.sub(r"'backend_hash': '\w*', ", "", source)
    lines = (line for line in source.splitlines() if not line.lstrip().startswith("#"))
    return "\n".join(lines).strip("\n") + "\n"
