"""What is asked about a candidate: which cases it supports, at which sizes, and with which probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_kernelllm.core.kernel_module import KernelModuleError, read_supports
from pytest_kernelllm.core.records import Case
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.reference.probes import Limits, Probe, covers, plan
from pytest_kernelllm.judge.run.run import Decided


@dataclass(frozen=True)
class Plan:
    """What is asked about one case of the target."""

    case: Case
    probes: tuple[Probe, ...]
    ranges: Mapping[str, tuple[int, int]]
    """Of sizes that the candidate supports."""
    sizes: dict[str, int]
    """At which it is timed: the case's own, as far as they are in these ranges."""

    def note(self, sizes: Mapping[str, int]) -> str:
        """In words, why the case is timed at these sizes, where they are not its own."""
        own = self.case.sizes
        others = ", ".join(
            f"{name}={size}, not {own[name]}" for name, size in sizes.items() if size != own[name]
        )
        if not others:
            return ""
        why = "the kernel supports no others" if sizes == self.sizes else "there was no memory for more"
        return f"timed at {others}: {why}"


def make_plans(
    source: str, cases: Sequence[Case], policy: Policy, *, on_gpu: bool, seed: int, nonfinite: bool
) -> list[Plan]:
    """The plan for each case that a kernel module says it supports.

    Raises:
        Decided: it supports none, or does not say what it supports.
    """
    try:
        supports = read_supports(source)
    except KernelModuleError as error:
        raise Decided("rejected", "screen", str(error), "supports") from None
    limits = (
        Limits(policy.gpu_elements, policy.gpu_longest)
        if on_gpu
        else Limits(policy.cpu_elements, policy.cpu_longest)
    )
    plans, refusals = [], []
    for case in cases:
        for support in supports:
            ranges = covers(support, case)
            if isinstance(ranges, str):
                refusals.append(f"{case.name}: {ranges}")
                continue
            floats = (k for k, v in case.domain.attributes.items() if isinstance(v, float))
            nudged = tuple(k for k in floats if k not in support.attributes)
            probes = plan(case, ranges, nudged, policy, limits, seed, nonfinite)
            sizes = {k: min(max(v, ranges[k][0]), ranges[k][1]) for k, v in case.sizes.items()}
            plans.append(Plan(case, tuple(probes), ranges, sizes))
            break
    if not plans:
        reason = "; ".join(refusals) or "SUPPORTS is empty"
        reason = f"it supports none of the target's cases ({reason})"
        raise Decided("rejected", "screen", reason, "supports")
    return plans
