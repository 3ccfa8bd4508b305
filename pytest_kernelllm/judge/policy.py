"""The thresholds that several parts of the judge share. Each rule's own are in its module (``rules``)."""

from __future__ import annotations

from dataclasses import dataclass

POLICY_VERSION = "4"
"""Part of every verdict's environment: verdicts under other rules are not believed. Raise it with every change of what
is accepted."""


@dataclass(frozen=True)
class Policy:
    """Thresholds. Errors are relative to the output's scale; ``eps`` is the output dtype's machine epsilon."""

    own_error_factor: float = 4.0
    """A candidate may err this many times as much as the original does, against float64."""
    single_eps: float = 16.0
    """…or this many ``eps``, for float32 and float64 outputs."""
    terms_eps: float = 0.5
    """…and this many more for each square root of the inputs' elements per output: sums one after the other, by atomics
    say, drift like a random walk. For float32 and float64."""
    half_eps: float = 1.5
    """…or this many ``eps``, for float16 and bfloat16 outputs: one rounding of a float32 result is half an eps."""
    conditioning_eps: float = 8.0
    """…or as much as the exact result changes when the inputs are perturbed by this many float32 ``eps``."""
    outlier_share: float = 1e-3
    """Elements that may err more, as a share of all, where the original has such elements: steps, as in rounding."""
    chunk_elements: int = 1 << 24
    """Elements that are compared at once."""
    judge_bytes: int | None = None
    """Bytes that preparing a probe may take; None: what the GPU has free, and without bound on a CPU."""
    cpu_elements: int = 1 << 13
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
    gpu_stress_elements: int = 1 << 16
    """Elements an input has under stress on a GPU, where free dimensions allow it."""
    cpu_stress_elements: int = 1 << 11
    """…and in the interpreter."""
    stress_rows: int = 4
    """Least rows an input should have under stress, for rows of different kinds."""
    timing_rounds: int = 12
    """Interleaved rounds of baseline and candidate."""
    timing_calls: int = 10
    """Calls a round."""
    between_runs: float = 0.012
    """Half width that a speedup's interval has at least, as a share: identical code judged again lies elsewhere in memory
    (``benchmarks/noise.py`` measures it)."""
    clock_tolerance: float = 0.10
    """How much less than the judge's clock the worker's may say, beside 3 µs."""
