"""Plans the probes for a candidate: which cases it supports, at which sizes, with which inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernelllm_judge.core.domains import beyond, covers, interpretable, reached
from kernelllm_judge.core.kernel_module import KernelModuleError, read_supports
from kernelllm_judge.core.records import Case, Domain
from kernelllm_judge.findings import Decision
from kernelllm_judge.policy import Policy
from kernelllm_judge.rules.outputs import stress_sizes
from kernelllm_judge.rules.rule import Rule, SupportedCase, seed_of
from kernelllm_judge.truth.probes import Limits, Probe, fit
from kernelllm_judge.truth.variations import OTHERS_THAN_GIVEN

SUBSTITUTE_SEED = seed_of("substitutes")
"""Added to the first seed, so that these inputs differ from those of every rule."""


@dataclass(frozen=True)
class Plan:
    """The probes for one case of the target."""

    case: Case
    main: tuple[Probe, ...]
    """Probes at the main sizes. The first is always there, whatever rules are in force."""
    further: tuple[Probe, ...]
    """All other probes."""
    ranges: Mapping[str, tuple[int, int]]
    """Inclusive range of each named dimension that the candidate supports."""
    sizes: dict[str, int]
    """The sizes at which it is timed: the case's own, moved into ``ranges`` where they lie outside."""
    interpreted: tuple[Probe, ...] = ()
    """Small probes for Triton's interpreter, where the others run on a GPU."""
    small: Mapping[str, int] = field(default_factory=dict)
    """Small sizes for many probes."""
    nonfinite: bool = True
    """Whether NaN and infinities must come out as in the original."""
    most: int = 0
    """Most elements of an input in a probe."""
    substitutes: tuple[Probe, ...] = ()
    """Probes with other inputs than those given, and with other weights, for where none of ``main`` can tell right from
    wrong."""
    aligned: bool = False
    """Whether tensors are aligned, because the candidate supports no others."""

    @property
    def probes(self) -> tuple[Probe, ...]:
        """All probes, in order."""
        return (*self.main, *self.further)

    def note(self, sizes: Mapping[str, int]) -> str:
        """Explains why the case is timed at these sizes; empty where they are its own."""
        own = self.case.sizes
        others = ", ".join(
            f"{name}={size}, not {own[name]}" for name, size in sizes.items() if size != own[name]
        )
        if not others:
            return ""
        why = "the kernel supports no others" if sizes == self.sizes else "there was no memory for more"
        return f"timed at {others}: {why}"


def make_plans(
    source: str,
    cases: Sequence[Case],
    rules: Sequence[Rule],
    policy: Policy,
    *,
    on_gpu: bool,
    seed: int,
    nonfinite: bool,
    adopted: bool = False,
) -> list[Plan]:
    """Returns the plans for each case that a kernel module supports: one for each domain that lies within the case.

    Args:
        on_gpu: whether the candidate runs on a GPU.
        nonfinite: whether NaN and infinities must come out as in the original.
        adopted: whether the kernel ships already. Without a GPU it then may claim larger sizes than are asked here, because a
            GPU may have shown that they are right.

    Raises:
        Decision: the module supports no case, claims more than the cases cover or than is asked, or has no valid ``SUPPORTS``.
    """
    try:
        supports = read_supports(source)
    except KernelModuleError as error:
        raise Decision("rejected", "static check", str(error), "supports") from None
    limits = (
        Limits(policy.gpu_elements, policy.gpu_row) if on_gpu else Limits(policy.cpu_elements, policy.cpu_row)
    )
    cases = reached(cases, source)
    asked = _asked(supports, cases, on_gpu=on_gpu, adopted=adopted)
    plans: list[Plan] = []
    for case in cases:
        planned = set()
        for support in asked:
            ranges = covers(support, case)
            if isinstance(ranges, str) or beyond(support, case):
                continue
            floats = (k for k, v in case.domain.attributes.items() if isinstance(v, float))
            open_attributes = tuple(k for k in floats if k not in support.attributes)
            if (key := (*ranges.items(), open_attributes, support.aligned)) in planned:
                continue
            planned.add(key)
            supported = SupportedCase(
                case,
                ranges,
                main=fit(case, ranges, limits.elements),
                open_attributes=open_attributes,
                policy=policy,
                limits=limits,
                seed=seed,
                nonfinite=nonfinite,
            )
            plans.append(replace(plan_case(supported, rules), aligned=support.aligned))
    if not plans:
        raise Decision("rejected", "static check", "its SUPPORTS is empty", "supports")
    return plans


def _asked(
    supports: Sequence[Domain], cases: Sequence[Case], *, on_gpu: bool, adopted: bool
) -> tuple[Domain, ...]:
    """Returns what is asked of each domain; raises ``Decision`` as ``make_plans`` does."""
    asked = []
    for number, support in enumerate(supports, 1):
        refusals = [f"{case.name}: {why}" for case in cases if (why := beyond(support, case))]
        within = next((case for case in cases if not beyond(support, case)), None)
        if within is None:
            reason = f"domain {number} of its SUPPORTS lies within none of the target's cases ({'; '.join(refusals)})"
            raise Decision("rejected", "static check", reason, "supports")
        asked.append(support if on_gpu else interpretable(support, within))
        if support != asked[-1] and not adopted:
            cut = asked[-1].dims
            sizes = in_words({k: high for k, (_, high) in cut.items() if high < support.dims[k][1]})
            reason = f"domain {number} of its SUPPORTS has larger sizes than are asked without a GPU: {sizes} at most"
            raise Decision("rejected", "static check", reason, "supports")
    return tuple(asked)


def sizes_asked(plans: Sequence[Plan]) -> str:
    """Says up to which sizes a candidate is judged in Triton's interpreter; empty if it is as far as the target declares."""
    cut = [plan for plan in plans if interpretable(plan.case.domain, plan.case) != plan.case.domain]
    ends = {in_words({name: high for name, (_, high) in plan.ranges.items()}) for plan in cut}
    return f"sizes up to {' or '.join(sorted(ends))} were asked here; a GPU asks more" if ends else ""


def in_words(sizes: Mapping[str, int]) -> str:
    """Returns sizes as in ``batch=8, seq=16``."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def plan_case(supported: SupportedCase, rules: Sequence[Rule]) -> Plan:
    """Returns the plan of one case: the main probe, and the probes of every rule."""
    main = [supported.probe("values", supported.main, 0)]
    further: list[Probe] = []
    for rule in rules:
        (main if rule.main else further).extend(rule.probes(supported))
    sizes = {
        name: min(max(size, supported.ranges[name][0]), supported.ranges[name][1])
        for name, size in supported.case.sizes.items()
    }
    interpreted = [probe for rule in rules for probe in rule.interpreted_probes(supported)]
    # As `values`: such inputs and weights may come when the kernel is used.
    substitutes = (
        supported.probe("values", supported.main, SUBSTITUTE_SEED, stress=OTHERS_THAN_GIVEN),
        replace(supported.probe("values", supported.main, SUBSTITUTE_SEED), normalized=True),
    )
    return Plan(
        supported.case,
        tuple(main),
        tuple(further),
        supported.ranges,
        sizes,
        tuple(interpreted),
        stress_sizes(supported),
        supported.nonfinite,
        supported.limits.elements,
        substitutes,
    )
