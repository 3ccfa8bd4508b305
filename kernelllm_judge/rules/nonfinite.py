"""The rule ``nonfinite``: NaN and infinities in the inputs come out where the original has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelllm_judge.rules.rule import SupportedCase
from kernelllm_judge.rules.stress import stress_sizes
from kernelllm_judge.rules.values import OutputRule
from kernelllm_judge.truth.probes import Probe, rows
from kernelllm_judge.truth.stress import PLANTED


@dataclass(frozen=True)
class Nonfinite(OutputRule):
    """NaN and infinities come out as in the original, unless the target is marked ``nonfinite=False``."""

    name = "nonfinite"
    says = "NaN and infinities in the inputs come out where the original has them"

    apart: tuple[str, ...] = ("NaN", "+inf", "-inf", "whole rows of -inf, and ±inf together")
    """Values planted in the inputs (``reference.stress.PLANTED``), each in a probe of its own…"""
    together: tuple[str, ...] = ("NaN and ±inf",)
    """…or all in one probe, in Triton's interpreter or where inputs cannot be made small."""

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe for each planted value."""
        sizes, cheap = stress_sizes(supported)
        planted = (self.apart if cheap else self.together) if supported.nonfinite else ()
        if planted == self.together and rows(supported.case.domain, sizes) < len(PLANTED[planted[0]]):
            planted = (*planted, self.apart[-1])  # for which there is no row
        for number, values in enumerate(planted):
            yield supported.probe(self.name, sizes, self.seed + number, stress=values)
