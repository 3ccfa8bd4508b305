"""What a candidate is timed against: calls of the original, eager and by ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.shared.clock import GpuClock
from kernelllm_judge.truth.gradients import Gradients, both_passes
from kernelllm_judge.truth.prepared import PreparedProbe, bytes_of


@dataclass(frozen=True)
class OriginalCalls:
    """One call of the original, of its forward pass or of both passes."""

    passes: Literal["forward", "forward and backward"]
    eager: Callable[[], Any]
    compiled: Callable[[], Any] | None
    """The original by ``torch.compile``; None where it does not compile."""
    bytes: int
    """Bytes that such a call reads and writes, each tensor once."""


def forward_pass(prepared: PreparedProbe, compiled: Callable[..., Any] | None) -> OriginalCalls:
    """Returns calls of the forward pass.

    ``compiled`` is what ``torch.compile`` made of the original; None where it does not compile.
    """
    eager, given = prepared.callable_module(), nested(prepared.arguments)
    return OriginalCalls(
        "forward",
        lambda: eager(**given),
        None if compiled is None else lambda: compiled(**given),
        prepared.bytes,
    )


def forward_and_backward(
    prepared: PreparedProbe, compiled: Callable[..., Any] | None, gradients: Gradients
) -> OriginalCalls:
    """Returns calls with their backward passes; ``gradients`` are the probe's, ``compiled`` is as for ``forward_pass``."""
    arguments = prepared.arguments
    into = bytes_of(gradient for gradient in gradients.into if gradient is not None)
    return OriginalCalls(
        "forward and backward",
        both_passes(prepared.callable_module(), arguments, gradients),
        None if compiled is None else both_passes(compiled, arguments, gradients),
        prepared.bytes + into + gradients.written,
    )


@dataclass
class Baseline:
    """Eager or ``torch.compile`` as an ``Implementation``, in the judge's own process."""

    name: str
    call: Callable[[], Any]
    clock: GpuClock

    def cold(self, flushes: int) -> float:
        """Times one call behind ``flushes`` overwrites of L2, in µs."""
        return self.clock.one(self.call, flushes)[1]

    def renew(self) -> None:
        """Has nothing to renew."""

    def loop(self, count: int, flushes: int = 0) -> list[float]:
        """Times ``count`` calls in a row, in µs, see ``GpuClock.many``."""
        return self.clock.many([self.call], count, flushes)[1]
