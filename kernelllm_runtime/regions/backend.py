"""A backend of ``torch.compile``: regions that have a kernel run it, and TorchInductor gets the rest."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from kernelllm_runtime.regions.cut import Cut, Region, cut
from kernelllm_runtime.regions.kinds import value_of
from kernelllm_runtime.regions.operators import operator_of
from kernelllm_runtime.regions.text import Written, written

MODEL = TypeVar("MODEL", bound=nn.Module)
Compiled = Callable[..., Any]


class Backend:
    """Compiles graphs. Where a graph has none of the regions, or needs gradients, it is TorchInductor."""

    def __init__(
        self, regions: Mapping[str, nn.Module], options: Mapping[str, Any], attention: str = ""
    ) -> None:
        """Takes what to place.

        Args:
            regions: a module for each region, by its ``Written.key``; its class runs the kernel.
            options: TorchInductor's, such as ``{"triton.cudagraphs": True}``.
            attention: the library that computes attention where it can, such as ``cudnn``; empty: as torch chooses.
        """
        self._regions, self._options, self._attention = dict(regions), dict(options), attention
        self.placed: dict[str, int] = {}
        """How often each region was placed so far."""

    def __call__(self, module: GraphModule, inputs: Sequence[torch.Tensor]) -> Compiled:
        """Compiles one graph that Dynamo captured."""
        from torch._inductor.compile_fx import compile_fx

        if self._regions and not (torch.is_grad_enabled() and any(_trained(each) for each in inputs)):
            for key in place(module, self._regions):
                self.placed[key] = self.placed.get(key, 0) + 1
        with _preferring(self._attention):  # TorchInductor asks while it compiles, and calls what it was told
            return cast(Compiled, compile_fx(module, inputs, config_patches=self._options))


@contextmanager
def _preferring(attention: str) -> Iterator[None]:
    if not attention:
        yield
        return
    import torch._functorch.config as functorch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    first = getattr(SDPBackend, f"{attention.upper()}_ATTENTION")
    rest = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
    order = [first, *(each for each in rest if each is not first)]
    # What is cached there does not know which library was preferred.
    with sdpa_kernel(order, set_priority=True), functorch.patch(enable_autograd_cache=False):
        yield


def _trained(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def place(module: GraphModule, modules: Mapping[str, nn.Module]) -> list[str]:
    """Replaces regions of a graph by calls of modules, and returns their keys, one for each place."""
    found = cut(module)
    texts = [(region, written(region)) for region in found.regions]
    chosen = [(region, text) for region, text in texts if text is not None and text.key in modules]
    if chosen:
        module.graph = _Rebuilt(module.graph, found, chosen, modules).graph
        module.recompile()
    return [text.key for _, text in chosen]


class _Rebuilt:
    """A graph in which regions are calls, each behind all that it reads and before all that reads it."""

    def __init__(
        self,
        old: Graph,
        found: Cut,
        chosen: Sequence[tuple[Region, Written]],
        modules: Mapping[str, nn.Module],
    ) -> None:
        self.graph = Graph()
        self._new: dict[Node, Node] = {}
        index = {node: number for number, node in enumerate(old.nodes)}
        inside = {node for region, _ in chosen for node in region.nodes} - found.views
        # The regions of a level come before its other nodes, which may read them; a call's is one of those.
        steps: list[tuple[tuple[int, int, int], Node | tuple[Region, Written]]] = [
            ((found.levels[node], 1, index[node]), node) for node in _live(old, inside, found.views)
        ]
        steps += [(_place(each[0], index), each) for each in chosen]
        for _, step in sorted(steps, key=lambda step: step[0]):
            if isinstance(step, Node):
                self._new[step] = copied = self.graph.node_copy(step, self._new.__getitem__)
                for name, noted in vars(step).items():  # Dynamo notes there where an argument comes from
                    if not hasattr(copied, name):
                        setattr(copied, name, noted)
            else:
                self._call(*step, modules[step[1].key])
        self.graph.lint()

    def _call(self, region: Region, text: Written, module: nn.Module) -> None:
        values = [value_of(node) for node in region.outputs]
        forms = [(value.dtype, tuple(value.shape), value.stride()) for value in values]
        target = operator_of(text.name, module, text.inputs, forms)
        call = self.graph.call_function(target, tuple(self._new[node] for node in region.inputs))
        parts = (
            [call]
            if len(values) == 1
            else [self.graph.call_function(operator.getitem, (call, number)) for number in range(len(values))]
        )
        for node, part, value in zip(region.outputs, parts, values, strict=True):
            part.meta["example_value"] = value
            self._new[node] = part


def _place(region: Region, index: Mapping[Node, int]) -> tuple[int, int, int]:
    if region.call is not None:
        return region.level, 1, index[region.call]
    return region.level, 0, index[region.nodes[0]]


def _live(graph: Graph, inside: Set[Node], views: Set[Node]) -> list[Node]:
    """The nodes that stay: all outside the regions but views that nobody reads any more."""
    live: set[Node] = set()
    for node in reversed(graph.nodes):
        if node not in inside and (node not in views or any(user in live for user in node.users)):
            live.add(node)
    return [node for node in graph.nodes if node in live]


def compiled(
    model: MODEL, regions: Mapping[str, type[nn.Module]], options: Mapping[str, Any], attention: str = ""
) -> MODEL:
    """Makes calls of a model run compiled, with kernels in its regions, and returns it.

    Calls of other shapes, or with gradients, run compiled without kernels. ``model.compile()`` of torch does the same
    without kernels at all.

    Args:
        regions: the class of each region by its key; classes that adopted a kernel run it.
        options: TorchInductor's.
        attention: the library that computes attention where it can, such as ``cudnn``.
    """
    backend = Backend({key: cls().eval() for key, cls in regions.items()}, options, attention)
    model._compiled_call_impl = torch.compile(entry_of(model), backend=backend, dynamic=False)
    return model


def entry_of(model: nn.Module) -> Compiled:
    """Returns a model's own call as a function that Dynamo traces whole, also where ``forward`` is torch's, as in ``Sequential``."""
    own: Compiled = model._call_impl

    def call(*args: Any, **kwargs: Any) -> Any:
        return own(*args, **kwargs)

    return call
