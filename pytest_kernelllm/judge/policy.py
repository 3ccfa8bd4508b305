"""The judge's rules as numbers, in one place. ``docs/trust.md`` derives them."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_kernelllm.judge.rules import SWITCHABLE

POLICY_VERSION = "1"
"""Part of every source hash and record: verdicts under other rules are not believed. Raise it with every change
of what is accepted."""


@dataclass(frozen=True)
class Policy:
    """Thresholds. Errors are relative to the output's scale; ``eps`` is the output dtype's machine epsilon."""

    own_error_factor: float = 4.0
    """A candidate may err this many times as much as the original does, against float64."""
    single_eps: float = 16.0
    """…or this many ``eps``, for float32 and float64 outputs."""
    half_eps: float = 1.5
    """…or this many ``eps``, for float16 and bfloat16 outputs: one rounding of a float32 result is half an eps."""
    conditioning_eps: float = 8.0
    """…or as much as the exact result moves when the inputs move by this many float32 ``eps``."""
    conditioning_cap: float = 1e-3
    """…which never excuses more than this."""
    cpu_elements: int = 1 << 14
    """Elements an input may have in the interpreter, where a probe's free dimensions allow it."""
    cpu_longest: int = 64
    """How far a single dimension is taken there: programs run one after the other, some 10 ms each."""
    interpreter_patience: float = 3.0
    """The deadline's factor there: what is slow in Python need not be slow on a GPU."""
    gpu_elements: int = 1 << 22
    """Elements an input may have on a GPU in most probes, where free dimensions allow it."""
    gpu_longest: int = 1 << 31
    """No bound of its own on a GPU."""
    seeds: int = 3
    """Random draws at every case's main size."""
    scales: tuple[float, ...] = (1e-2, 8.0)
    """Factors on real-valued inputs, beside 1."""
    timing_rounds: int = 12
    """Interleaved rounds of baseline and candidate."""
    timing_calls: int = 10
    """Calls a round."""
    clock_tolerance: float = 0.10
    """How far the worker's event clock and the judge's own may differ, beside 3 µs."""
    disabled: frozenset[str] = frozenset()
    """Rules left out, by name (see ``rules``). For tests of the judge itself: what they accept is not verified."""

    def __post_init__(self) -> None:
        """Refuse the names of no rule."""
        if unknown := self.disabled - SWITCHABLE:
            raise ValueError(f"no rule that can be switched off: {', '.join(sorted(unknown))}")
