"""Defines the thresholds that several parts of the judge share. Each rule's own are fields of the rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The thresholds.

    Errors are relative to the output's scale; ``eps`` is the output dtype's machine epsilon.
    """

    own_error_factor: float = 4.0
    """A candidate's error against float64 may be this many times the original's own…"""
    noise: float = 0.05
    """Own error of a row above which its values are noise, as where two nearly equal numbers were subtracted…"""
    noise_factor: float = 64.0
    """…and a candidate's error there may be this many times as large."""
    single_eps: float = 16.0
    """…or this many ``eps``, for float32 and float64 outputs."""
    terms_eps: float = 1.0
    """…plus this many ``eps`` times the square root of input elements per output element, for float32 and
    float64: sequential sums, by atomics for example, drift like a random walk…"""
    most_terms: int = 1 << 16
    """…but no more elements than this, unless they are products: longer sums are added up in blocks."""
    half_eps: float = 1.5
    """…or this many ``eps``, for float16 and bfloat16 outputs: one rounding of a float32 result is half
    an eps."""
    conditioning_eps: float = 8.0
    """…or as much as the exact result changes when the inputs are perturbed by this many float32 ``eps``."""
    outlier_share: float = 1e-3
    """Share of elements that may err more, where the original has such elements too: at steps, as in
    rounding."""
    chunk_elements: int = 1 << 24
    """Elements that are compared at once."""
    slice_bytes: int = 1 << 26
    """Bytes of inputs, weights and outputs from which on a call is compared in slices, where its rows are independent."""
    slice_elements: int = 1 << 24
    """Most elements of a tensor in such a slice."""
    judge_bytes: int | None = None
    """Bytes that preparing a probe may take; None: the GPU's free memory, and no bound on a CPU."""
    cpu_elements: int = 1 << 13
    """Most elements of an input in Triton's interpreter, where a probe's free dimensions allow it."""
    cpu_row: int = 1 << 12
    """Largest size of the last dimension there, which most kernels read in a few programs."""
    interpreter_patience: float = 3.0
    """Factor on the deadline there: what is slow in Python need not be slow on a GPU."""
    gpu_elements: int = 1 << 22
    """Most elements of an input on a GPU in most probes, where free dimensions allow it."""
    gpu_row: int = 1 << 31
    """Largest size of a single dimension on a GPU: in effect unbounded."""
    seeds: int = 2
    """Random draws of inputs at every case's main sizes."""
    gpu_stress_elements: int = 1 << 16
    """Elements of a stressed input on a GPU, where free dimensions allow it."""
    cpu_stress_elements: int = 1 << 11
    """…and in the interpreter."""
    stress_rows: int = 4
    """Fewest rows of a stressed input, so that rows can be of different kinds."""
    timing_rounds: int = 12
    """Interleaved rounds of baseline and candidate."""
    timing_calls: int = 10
    """Calls per implementation and round."""
    between_runs: float = 0.012
    """Smallest half width of a speedup's interval, as a share: in another run the same code lies
    elsewhere in memory (``python -m benchmarks noise`` measures this)."""
    clock_tolerance: float = 0.10
    """Share by which the worker's clock may report less than the judge's, plus 3 µs."""
