"""Times kernels at the calls that a model makes, so that a kernel is placed only where it beats what would run there."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from kernelllm_runtime.instance import Swap
from pytest_kernelllm.core.cuda_graphs import capture, warm_up
from pytest_kernelllm.core.records import Ratio

ROUNDS = 15
"""Rounds in which both ways take turns."""
_LEAST_S = 2e-3
"""A round repeats a call until it takes about this long."""
_MOST = 200
"""A round repeats a call at most so often."""


@dataclass(frozen=True)
class _Call:
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def form(self) -> tuple[Any, ...]:
        """Calls of one form take the same time."""
        leaves, spec = pytree.tree_flatten((self.args, dict(self.kwargs)))
        shown = (
            (leaf.dtype, leaf.shape, leaf.stride()) if isinstance(leaf, torch.Tensor) else repr(leaf)
            for leaf in leaves
        )
        return (*shown, str(spec))


def gains(
    swaps: Sequence[Swap], example: Callable[[], object], *, compiled: bool, graphs: bool
) -> dict[str, Ratio]:
    """Returns how many times as fast each kernel is as the forward that it replaces, by path, where the example calls it.

    Modules of one class that are called alike with weights of the same shapes are timed once.

    Args:
        swaps: the replaced modules.
        example: calls the model as it will be called.
        compiled: whether both run under ``torch.compile``, which fuses neither with its neighbours.
        graphs: whether both are replayed as CUDA graphs, without the time that Python takes.
    """
    calls = _calls(swaps, example)
    known: dict[Any, Ratio] = {}
    found: dict[str, Ratio] = {}
    for swap in swaps:
        if swap.path not in calls:
            continue
        call = calls[swap.path]
        weights = tuple((tensor.dtype, tensor.shape) for tensor in swap.module.state_dict().values())
        key = (swap.after, call.form, weights)
        if key not in known:
            known[key] = _gain(swap, call, compiled, graphs)
        found[swap.path] = known[key]
    return found


def _calls(swaps: Iterable[Swap], example: Callable[[], object]) -> dict[str, _Call]:
    """Returns the first call that the example makes of each module, by path."""
    calls: dict[str, _Call] = {}

    def hook(path: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def remember(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            calls.setdefault(path, _Call(args, kwargs))

        return remember

    handles = [swap.module.register_forward_pre_hook(hook(swap.path), with_kwargs=True) for swap in swaps]
    try:
        with torch.no_grad():
            example()
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _gain(swap: Swap, call: _Call, compiled: bool, graphs: bool) -> Ratio:
    def bound(forward: Callable[..., Any]) -> Callable[[], Any]:
        ready = torch.compile(forward) if compiled else forward
        return lambda: ready(swap.module, *call.args, **call.kwargs)

    # From the classes: nn.Module.__call__ would run hooks of the user's.
    ways = [bound(swap.before.forward), bound(swap.after.forward)]
    with torch.no_grad():
        if graphs:
            ways = [_recorded(way) for way in ways]
        repeats = [_repeats(way) for way in ways]
        rounds = [[_seconds(way, n) for way, n in zip(ways, repeats, strict=True)] for _ in range(ROUNDS)]
    ratios = sorted(before / after for before, after in rounds)
    quarter = ROUNDS // 4
    return Ratio(statistics.median(ratios), ratios[quarter], ratios[-1 - quarter])


def _recorded(way: Callable[[], Any]) -> Callable[[], Any]:
    warm_up(way, times=3)
    graph = torch.cuda.CUDAGraph()
    with capture(graph):
        way()
    return graph.replay


def _repeats(way: Callable[[], Any]) -> int:
    """Returns how often a round calls a way; runs it, so that it is compiled."""
    way()
    return max(1, min(_MOST, int(_LEAST_S / max(_seconds(way, 3), 1e-6))))


def _seconds(way: Callable[[], Any], repeats: int) -> float:
    """Returns the seconds of one call, from the call to the end of the GPU's work."""
    _synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        way()
    _synchronize()
    return (time.perf_counter() - start) / repeats


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
