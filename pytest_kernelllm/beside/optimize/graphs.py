"""Records the calls of a whole model as CUDA graphs, one for each form of call."""

from __future__ import annotations

import functools
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from kernelllm_runtime.adopted import KernelLLMWarning
from kernelllm_runtime.instance import own_class
from kernelllm_runtime.pins.settings import CONVOLUTION_PRECISION, PRODUCT_PRECISION, setting
from pytest_kernelllm.core.cuda_graphs import capture, warm_up

MOST = 16
"""Most forms of call that are recorded, as each needs memory of its own; further forms run without a graph."""

_SCALARS = (bool, int, float, str, type(None))


def graphing(model: nn.Module) -> type[nn.Module]:
    """Returns a class for ``swap`` with which this module, but no copy of it, replays its calls as CUDA graphs."""
    made = own_class(type(model))
    original = type(model).forward
    graphs, only = _Graphs(original), weakref.ref(model)

    @functools.wraps(original)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or self is not only():
            return original(self, *args, **kwargs)
        return graphs.call(self, args, kwargs)

    made.forward = forward
    return made


@dataclass(frozen=True)
class _Graph:
    replay: Callable[..., Any] | None
    """None if calls of this form cannot be recorded."""
    memory: tuple[int, ...]
    """Addresses of the weights that the graph reads."""


class _Graphs:
    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original
        self._graphs: dict[Any, _Graph] = {}
        self._parts = Parts()

    def call(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Replays the recording of this form of call; records it first, if possible."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        modules = self._parts.modules(model)
        key = form(modules, leaves)
        if key is None:
            return self._original(model, *args, **kwargs)
        key, memory = (key, spec), memory_of(modules)
        graph = self._graphs.get(key)
        if graph is None or graph.memory != memory:
            if graph is None and len(self._graphs) >= MOST:
                return self._original(model, *args, **kwargs)
            graph = self._graphs[key] = _Graph(self._record(model, leaves, spec), memory)
        if graph.replay is None:
            return self._original(model, *args, **kwargs)
        outputs = graph.replay(*(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)))
        # The next replay writes to the same memory.
        return pytree.tree_map(torch.clone, outputs)

    def _record(self, model: nn.Module, leaves: list[Any], spec: Any) -> Callable[..., Any] | None:
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        inputs = [tensor.clone() for tensor in tensors]

        def call() -> Any:
            rest = iter(inputs)
            filled = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            args, kwargs = pytree.tree_unflatten(filled, spec)
            outputs = self._original(model, *args, **kwargs)
            for leaf in pytree.tree_leaves(outputs):
                if not isinstance(leaf, torch.Tensor):
                    raise TypeError(f"it returns a {type(leaf).__qualname__} in addition to tensors")
            return outputs

        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.device(tensors[0].device):
                warm_up(call, times=3)
                with capture(graph):
                    outputs = call()
        except Exception as error:
            if os.environ.get("KERNELLLM_STRICT", "") not in ("", "0"):
                raise
            warnings.warn(
                f"{type(model).__qualname__} runs without a CUDA graph, because it cannot be recorded "
                f"({type(error).__name__}: {error}).",
                KernelLLMWarning,
                stacklevel=6,
            )
            return None

        def replay(*given: torch.Tensor) -> Any:
            for place, tensor in zip(inputs, given, strict=True):
                place.copy_(tensor)
            graph.replay()
            return outputs

        return replay


class Parts:
    """The modules of a model, which every call needs. The tree is walked again only after it changed; no module is kept alive."""

    def __init__(self) -> None:
        """Starts without modules; the first call walks the tree."""
        self._below: tuple[weakref.ref[nn.Module], ...] = ()
        self._children: tuple[int, ...] | None = None

    def modules(self, model: nn.Module) -> Sequence[nn.Module]:
        """Returns the model and every module inside, as they are now."""
        modules = [model, *(module for below in self._below if (module := below()) is not None)]
        # While all of them are there, no other module has the id of one.
        if len(modules) <= len(self._below) or _children(modules) != self._children:
            modules = list(model.modules())
            self._below = tuple(map(weakref.ref, modules[1:]))
            self._children = _children(modules)
        return modules


def _children(modules: Sequence[nn.Module]) -> tuple[int, ...]:
    """Returns how many parts each module has, and which: a part may move from the end of one to the start of the next."""
    return (*map(len, map(attrgetter("_modules"), modules)), *map(id, _held("_modules", modules)))


def _held(where: str, modules: Sequence[nn.Module]) -> Iterator[Any]:
    """Yields what all modules hold in the dictionary of this name. Loops in C: it runs at every call."""
    return chain.from_iterable(map(methodcaller("values"), map(attrgetter(where), modules)))


def form(modules: Sequence[nn.Module], leaves: list[Any]) -> tuple[Any, ...] | None:
    """Returns what a recording depends on in addition to the weights; None for calls that are not recorded.

    Only calls in ``eval()`` mode without gradients and autocast, with plain tensors on one GPU and plain values, are
    recorded.
    """
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors or torch.is_grad_enabled() or torch.is_autocast_enabled("cuda"):
        return None
    device = tensors[0].device
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return None
    if any(map(attrgetter("training"), modules)):
        return None
    parts: list[Any] = [
        torch.is_inference_mode_enabled(),
        setting(CONVOLUTION_PRECISION),
        setting(PRODUCT_PRECISION),
    ]
    for leaf in leaves:
        if type(leaf) in (torch.Tensor, nn.Parameter):
            if leaf.device != device or leaf.layout is not torch.strided:
                return None
            parts.append((leaf.dtype, leaf.shape, leaf.stride(), device))
        elif type(leaf) in _SCALARS:
            parts.append((type(leaf), leaf))
        else:
            return None
    return tuple(parts)


def memory_of(modules: Sequence[nn.Module]) -> tuple[int, ...]:
    """Returns the addresses of all parameters and buffers."""
    tensors = chain(_held("_parameters", modules), _held("_buffers", modules))
    return tuple([tensor.data_ptr() for tensor in tensors if tensor is not None])
