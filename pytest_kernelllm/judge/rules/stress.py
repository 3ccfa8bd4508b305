"""The rule ``stress``: outputs are right for scaled, shifted, sparse, equal and extreme inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_kernelllm.judge.reference.probes import Probe, elements, fit, rows
from pytest_kernelllm.judge.rules.rule import SupportedCase
from pytest_kernelllm.judge.rules.values import OutputRule

SEED = 50
"""Added to the first seed, to draw other inputs than the other rules do."""


@dataclass(frozen=True)
class Stress(OutputRule):
    """Outputs are right for inputs that are hard to compute with."""

    name = "stress"
    statement = "outputs are right for scaled, shifted, sparse, equal and extreme inputs"

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
        "mixed-row",
    )
    """Kinds of stress (``reference.stress.TRANSFORMS``) where a probe costs little."""
    few_kinds: tuple[str, ...] = ("×0.0001", "×10000", "shifted", "mixed-row")
    """…and in the interpreter, or where inputs cannot be made small."""

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """One probe a kind of stress."""
        sizes, cheap = stress_sizes(supported)
        for number, kind in enumerate(self.all_kinds if cheap else self.few_kinds):
            yield supported.probe(self.name, sizes, SEED + number, stress=kind)


def stress_sizes(supported: SupportedCase) -> tuple[dict[str, int], bool]:
    """Sizes of a probe under stress, and whether one costs so little that many can be tried."""
    policy, domain = supported.policy, supported.case.domain
    on_gpu = supported.limits.elements > policy.cpu_elements  # not in Triton's interpreter
    small = fit(
        supported.case, supported.ranges, policy.gpu_stress_elements if on_gpu else policy.cpu_stress_elements
    )
    # A dimension of one would hide what happens along it, and rows of different kinds need rows.
    sizes = {k: max(v, min(supported.main[k], 2)) for k, v in small.items()}
    if rows(domain, sizes) < policy.stress_rows or elements(domain, sizes) > supported.limits.elements:
        sizes = dict(supported.main)
    return sizes, on_gpu and elements(domain, sizes) <= policy.gpu_elements
