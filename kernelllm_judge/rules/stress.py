"""The rule ``stress``: outputs are right for scaled, shifted, negative, zero, sparse, equal and extreme inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelllm_judge.rules.rule import SupportedCase
from kernelllm_judge.rules.values import OutputRule
from kernelllm_judge.truth.probes import Probe, elements, fit, rows
from kernelllm_judge.truth.stress import WHOLE_HALVES


@dataclass(frozen=True)
class Stress(OutputRule):
    """Outputs are right for numerically difficult inputs."""

    name = "stress"
    says = "outputs are right for scaled, shifted, negative, zero, sparse, equal and extreme inputs"

    all_kinds: tuple[str, ...] = (
        "×0.0001",
        "×0.01",
        "×8",
        "×10000",
        "shifted",
        "large-row",
        "equal-row",
        "equal-value",
        "two-value",
        "sparse",
        "extreme",
        "negative",
        "far negative",
        "very negative",
        "zero",
        "subnormal",
        WHOLE_HALVES,
        "mixed-row",
        "low-row",
    )
    """Kinds of stress (``reference.stress.TRANSFORMS``) where probes are cheap."""
    few_kinds: tuple[str, ...] = (
        "×0.0001",
        "×10000",
        "shifted",
        "negative",
        WHOLE_HALVES,
        "mixed-row",
        "low-row",
    )
    """…and in Triton's interpreter, or where inputs cannot be made small."""

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe for each kind of stress."""
        sizes, cheap = stress_sizes(supported)
        for number, kind in enumerate(self.all_kinds if cheap else self.few_kinds):
            yield supported.probe(self.name, sizes, self.seed + number, stress=kind)


def stress_sizes(supported: SupportedCase) -> tuple[dict[str, int], bool]:
    """Returns the sizes of stressed inputs, and whether such probes are cheap enough to run many."""
    policy, domain = supported.policy, supported.case.domain
    on_gpu = supported.limits.elements > policy.cpu_elements  # not in Triton's interpreter
    small = fit(
        supported.case, supported.ranges, policy.gpu_stress_elements if on_gpu else policy.cpu_stress_elements
    )
    # A dimension of size 1 hides errors along it, and rows of different kinds need several rows.
    sizes = {k: max(v, min(supported.main[k], 2)) for k, v in small.items()}
    if rows(domain, sizes) < policy.stress_rows or elements(domain, sizes) > supported.limits.elements:
        sizes = dict(supported.main)
    return sizes, on_gpu and elements(domain, sizes) <= policy.gpu_elements
