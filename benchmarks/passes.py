"""A forward and a backward pass: their results, times and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from interleaved import interleaved
from torch import nn

Way = Callable[..., Any]
"""One way to compute a block: a module, or a function of its inputs."""


class _Pass:
    """One call in training: fresh leaves, the outputs, and random gradients for them."""

    def __init__(self, way: Way, values: Sequence[torch.Tensor]) -> None:
        self.way = way
        self.leaves = [v.clone().requires_grad_() if v.is_floating_point() else v for v in values]
        # Not the leaves themselves, which a function may not change in place.
        self.given = [v.clone() for v in self.leaves]
        for parameter in way.parameters() if isinstance(way, nn.Module) else ():
            parameter.grad = None

    def forward(self) -> None:
        out = self.way(*self.given)
        self.outputs: list[torch.Tensor] = list(out) if isinstance(out, tuple) else [out]

    def draw(self) -> None:
        generator = torch.Generator(self.outputs[0].device).manual_seed(1)
        self.into = [
            torch.ones_like(o)
            if o.dim() == 0
            else torch.randn(o.shape, generator=generator, device=o.device, dtype=torch.float32).to(o.dtype)
            for o in self.outputs
        ]

    def backward(self) -> None:
        torch.autograd.backward(self.outputs, self.into)

    def gradients(self) -> list[torch.Tensor]:
        parameters = self.way.parameters() if isinstance(self.way, nn.Module) else ()
        return [t.grad for t in (*self.leaves, *parameters) if t.grad is not None]


def results(way: Way, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns outputs and gradients."""
    both = _Pass(way, values)
    both.forward()
    outputs = [o.detach().clone() for o in both.outputs]
    both.draw()
    both.backward()
    return [*outputs, *(gradient.clone() for gradient in both.gradients())]


def error_of(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Returns the largest difference from eager's outputs and gradients, as a share of the largest value of each."""
    if len(found) != len(expected):
        raise RuntimeError(f"{len(found)} outputs and gradients where eager has {len(expected)}")
    pairs = ((f.float(), e.float()) for f, e in zip(found, expected, strict=True))
    # Not Python's max, which may drop a NaN.
    return float(torch.stack([(f - e).abs().max() / e.abs().max() for f, e in pairs]).max())


def times_of(
    ways: dict[str, Way], values: Sequence[torch.Tensor], rounds: int, device: str
) -> dict[str, list[tuple[float, float]]]:
    """Returns µs of the forward and the backward pass, for each way and round."""
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    warming = 3 if device == "cuda" else 0
    for number, way in interleaved(ways, warming + rounds):
        both = _Pass(ways[way], values)
        forward = _timed(both.forward, device)
        both.draw()
        backward = _timed(both.backward, device)
        if number >= warming:
            times[way].append((forward, backward))
    return times


def _timed(call: Callable[[], None], device: str) -> float:
    """Returns the µs of a call on the GPU."""
    if device == "cpu":
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6
    torch.cuda.synchronize()
    # Work before the first event keeps the GPU busy while Python launches, so that no launch is waited for.
    torch.cuda._sleep(2_000_000)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    call()
    events[1].record()
    torch.cuda.synchronize()
    return events[0].elapsed_time(events[1]) * 1e3


def peak_of(way: Way, values: Sequence[torch.Tensor], device: str) -> int:
    """Returns the most bytes allocated during both passes, without inputs and the gradients of outputs."""
    if device == "cpu":
        return 0
    both = _Pass(way, values)
    both.forward()  # the sizes of outputs are known only now
    both.draw()
    into = both.into
    both = _Pass(way, values)
    both.into = into
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    both.forward()
    both.backward()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - held)
