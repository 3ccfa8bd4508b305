"""Times kernels at the calls that a model makes, so that a kernel is placed only where it beats what would run there."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from kernelllm_judge.core.records import Ratio
from kernelllm_runtime.adopted import DISPATCHER
from kernelllm_runtime.ambient import ambient_reason, autocast_reason
from kernelllm_runtime.compiled import wanted
from kernelllm_runtime.dispatch import Dispatcher
from kernelllm_runtime.instance import Swap
from kernelllm_runtime.methods import untraceable
from kernelllm_runtime.scope import device_type
from kernelllm_runtime.targets import is_pin
from pytest_kernelllm.core.cuda_graphs import capture, warm_up

FORMS = 8
"""Forms in which the example calls one module, such as several sizes, that are timed; further ones are not."""
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
    around: str | None
    """Why no kernel may run in what surrounded the call, such as autocast; None if one may."""

    def copied(self) -> _Call:
        """Returns the call with tensors of its own, which may be changed in place."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (self.args, dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs)

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
    swaps: Sequence[Swap],
    example: Callable[[], object],
    *,
    compiled: Mapping[str, Any] | None,
    graphs: bool,
) -> dict[str, Ratio | str]:
    """Returns how many times as fast each kernel is as the forward that it replaces, by path, where the example calls it.

    It is the reason instead where the kernel runs none of the calls, also because ``torch.compile`` does not see it. A module
    that is called in several forms is timed at up to ``FORMS`` of them together. Modules of one class that are called alike
    with weights of the same shapes are timed once. No call is repeated on the example's own tensors, and buffers are as
    before afterwards.

    Args:
        compiled: TorchInductor's options if both run under ``torch.compile``, which fuses neither with its neighbours.
        graphs: whether both are replayed as CUDA graphs, without the time that Python takes.
    """
    calls = _calls(swaps, example)
    known: dict[Any, Ratio] = {}
    found: dict[str, Ratio | str] = {}
    for swap in swaps:
        if swap.path not in calls:
            continue
        dispatcher = getattr(swap.after.forward, DISPATCHER)
        with torch.no_grad():
            reasons = [
                call.around or dispatcher.reason(swap.module, call.args, call.kwargs)
                for call in calls[swap.path]
            ]
        inside = [call for call, reason in zip(calls[swap.path], reasons, strict=True) if reason is None]
        if not inside:
            found[swap.path] = reasons[0]
            continue
        if compiled is not None and (unseen := _unseen(dispatcher)):
            found[swap.path] = unseen
            continue
        weights = tuple((tensor.dtype, tensor.shape) for tensor in swap.module.state_dict().values())
        key = (swap.after, tuple(call.form for call in inside), weights)
        if key not in known:
            known[key] = _gain(swap, [call.copied() for call in inside], compiled, graphs)
        found[swap.path] = dispatcher.off or known[key]  # it is off if the kernel raised
    return found


def _unseen(dispatcher: Dispatcher) -> str | None:
    """Returns why ``torch.compile`` sees the original in the kernel's place; None if it sees the kernel."""
    if not wanted():
        return "torch.compile sees the original unless KERNELLLM_COMPILE=1 is set, with torch 2.11 or newer"
    names = {name for domain in dispatcher.scope.domains for name in domain.attributes if is_pin(name)}
    if names - {"value:__class__"}:
        return "torch.compile sees the original, as it cannot compare all values that the original reads"
    if name := untraceable(dispatcher.scope.cls):
        return f"torch.compile sees the original, as it cannot tell whether `{name}` was replaced"
    return None


def _calls(swaps: Iterable[Swap], example: Callable[[], object]) -> dict[str, list[_Call]]:
    """Returns the first call of each form that the example makes of each module, by path."""
    calls: defaultdict[str, dict[Any, _Call]] = defaultdict(dict)

    def hook(path: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def remember(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            call = _Call(args, kwargs, ambient_reason() or autocast_reason(device_type()))
            if len(calls[path]) < FORMS:
                calls[path].setdefault(call.form, call)

        return remember

    handles = [swap.module.register_forward_pre_hook(hook(swap.path), with_kwargs=True) for swap in swaps]
    try:
        with torch.no_grad():
            example()
    finally:
        for handle in handles:
            handle.remove()
    return {path: [*forms.values()] for path, forms in calls.items()}


def _gain(swap: Swap, calls: Sequence[_Call], compiled: Mapping[str, Any] | None, graphs: bool) -> Ratio:
    options = None if compiled is None else {**compiled, "triton.cudagraphs": False}  # they are recorded here

    def bound(forward: Callable[..., Any]) -> Callable[[], Any]:
        ready = forward if options is None else torch.compile(forward, options=options)

        def run() -> None:
            for call in calls:
                ready(swap.module, *call.args, **call.kwargs)

        return run

    # From the classes: nn.Module.__call__ would run hooks of the user's.
    ways = [bound(swap.before.forward), bound(swap.after.forward)]
    with torch.no_grad(), restored(swap.module):
        if graphs:
            ways = [_recorded(way) for way in ways]
        repeats = [_repeats(way) for way in ways]
        rounds = [[_seconds(way, n) for way, n in zip(ways, repeats, strict=True)] for _ in range(ROUNDS)]
    return middle_half([before / after for before, after in rounds])


def middle_half(ratios: Sequence[float]) -> Ratio:
    """Returns the median of some rounds' ratios, and between which two the middle half of them lies."""
    ordered, quarter = sorted(ratios), len(ratios) // 4
    return Ratio(statistics.median(ordered), ordered[quarter], ordered[-1 - quarter])


@contextmanager
def restored(module: nn.Module) -> Iterator[None]:
    """A context after which a module's buffers, which calls may update or replace, are the same with the values from before."""
    holders = [(each, dict(each._buffers)) for each in module.modules()]
    before = [(buffer, buffer.clone()) for buffer in module.buffers() if _writable(buffer)]
    try:
        yield
    finally:
        for each, buffers in holders:
            each._buffers.update(buffers)
        # Buffers of a model that was made in inference mode cannot be written elsewhere.
        with torch.inference_mode():
            for buffer, value in before:
                buffer.copy_(value)


def _writable(buffer: torch.Tensor) -> bool:
    """Whether a call can update a buffer in place: PyTorch refuses where elements share memory, as after ``expand``."""
    if buffer.layout is not torch.strided:
        return True
    return all(size < 2 or stride for size, stride in zip(buffer.shape, buffer.stride(), strict=True))


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
    synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        way()
    synchronize()
    return (time.perf_counter() - start) / repeats


def synchronize() -> None:
    """Waits for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
