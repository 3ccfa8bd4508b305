"""Defines the thresholds that several parts of the judge share. Each rule's own are fields of the rule."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The thresholds.

    Errors are relative to the output's scale; ``eps`` is the output dtype's machine epsilon.
    """

    own_factor: float = 4.0
    """The largest error of a candidate may be this many times that of the honest evaluations, in each row…"""
    rms_factor: float = 1.75
    """…and the root mean square of its errors this many times theirs, in each row, in each column and in all: that of three
    roundings is √3 times that of one…"""
    rms_chance: float = 5.0
    """…and 1/√n times so much more for n errors: their root mean square differs by about one 1/√n by chance, and by more where
    a few of them decide."""
    single_eps: float = 16.0
    """What a dozen roundings of a float32 or float64 computation may come to is always allowed, in ``eps``, and √n more for
    sums of n terms, which drift like a random walk…"""
    most_terms: int = 1 << 16
    """…but of no more terms, unless they are products: longer sums are added up in blocks."""
    half_eps: float = 1.5
    """Largest error in ``eps`` that is always allowed for float16 and bfloat16: three roundings."""
    flipped: float = 1 / 512
    """Share of the elements of an output in a float of 8 bits that may be one step off where rounding decides, besides
    ``own_factor`` times as many as in honest evaluations."""
    conditioning_eps: float = 8.0
    """As much as the exact result changes when inputs and weights are perturbed by this many float32 ``eps`` is allowed."""
    honest_runs: int = 12
    """Evaluations at inputs with other last digits, each in two orders, for a candidate that would be wrong without them."""
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
    mutant_seconds: float = 40.0
    """How long mutants of a candidate may take there, and at most three quarters of what is left to it."""
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

    def together(self, count: int) -> float:
        """Returns how many times as large the root mean square of so many errors may be as that of honest ones."""
        return self.rms_factor * (1 + self.rms_chance / math.sqrt(max(count, 1)))
