"""The rule ``memory``: every access is checked in Triton's interpreter. ``run.call`` enforces it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kernelllm_judge.rules.rule import Rule, SupportedCase
from kernelllm_judge.rules.sizes import corners
from kernelllm_judge.truth.probes import Limits, Probe, fit


@dataclass(frozen=True)
class Memory(Rule):
    """Kernels stay inside their tensors, read only what was written, and have no races."""

    name = "memory"
    says = (
        "no kernel reads or writes outside its tensors, reads memory that nothing has written, or has programs "
        "that race; in Triton's interpreter, also where the candidate runs on a GPU"
    )

    def interpreted_probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns small probes at the main sizes, at primes, and at the low ends of the ranges."""
        policy = supported.policy
        if supported.limits.elements <= policy.cpu_elements:  # all probes run in the interpreter
            return
        small = replace(
            supported,
            main=fit(supported.case, supported.ranges, policy.cpu_stress_elements),
            limits=Limits(policy.cpu_stress_elements, policy.cpu_stress_elements),
        )
        for number, sizes in enumerate([dict(small.main), *corners(small)[:2]]):
            yield supported.probe(self.name, sizes, self.seed + number)
