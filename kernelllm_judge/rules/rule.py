"""Defines a rule: a statement that holds for every accepted candidate, and the checks that verify it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from kernelllm_judge.core.records import BaselineChoice, Case, Stage, Timing
from kernelllm_judge.findings import Findings
from kernelllm_judge.policy import Policy
from kernelllm_judge.run.backward import Backward
from kernelllm_judge.run.call import ProbeRun, Uploaded, upload
from kernelllm_judge.run.original import OriginalCall, call_original
from kernelllm_judge.run.right_before import RightBefore
from kernelllm_judge.shared.buffers import ALIGNMENT
from kernelllm_judge.standing import versions
from kernelllm_judge.timing.measure import Measurement
from kernelllm_judge.truth.probes import Limits, Probe


def seed_of(name: str) -> int:
    """Returns what is added to the judge's first seed for inputs of this name's own: there is room for a thousand."""
    return (1 + zlib.crc32(name.encode()) % (1 << 20)) << 10


@dataclass(frozen=True)
class SupportedCase:
    """A case that a candidate supports, for which rules choose probes."""

    case: Case
    ranges: Mapping[str, tuple[int, int]]
    """Inclusive range of each named dimension that the candidate supports."""
    main: Mapping[str, int]
    """The case's own sizes, or the largest below them that fit ``limits``."""
    open_attributes: tuple[str, ...]
    """Float attributes that the candidate claims to read."""
    policy: Policy
    limits: Limits
    seed: int
    """The judge's secret first seed."""
    nonfinite: bool
    """Whether NaN and infinities must come out as in the original."""

    def probe(
        self,
        rule: str,
        sizes: Mapping[str, int],
        number: int,
        *,
        stress: str = "",
        perturbed: tuple[str, ...] = (),
        values: str = "",
        state: str = "",
        incoming: str = "",
    ) -> Probe:
        """Returns a probe of this case.

        Args:
            sizes: sizes of the named dimensions.
            number: added to the first seed; from ``policy.seeds`` on, probes share the last seed's weights.
            stress: how the inputs are stressed, see ``Probe.stress``.
            perturbed: attributes set to another value.
            values: the kind of those values.
            state: the kind of weights, see ``Probe.state``.
            incoming: what kind of gradients outputs get, see ``Probe.incoming``.
        """
        weights = self.seed + min(number, self.policy.seeds - 1)
        seed = self.seed + number
        return Probe(
            self.case.name,
            tuple(sizes.items()),
            seed,
            stress,
            perturbed,
            values,
            state,
            incoming,
            weights,
            rule,
        )


@dataclass(frozen=True)
class CaseRun:
    """The first discriminating probe of a case, which passed once, to be run again in other ways."""

    first: ProbeRun
    aligned: bool = False
    """Whether the candidate supports aligned tensors only."""

    @cached_property
    def original(self) -> OriginalCall:
        """What one call of the original does at the same probe."""
        return call_original(self.first.prepared)

    @cached_property
    def elsewhere(self) -> Uploaded:
        """The same probe uploaded to other addresses, chosen at random."""
        shift = ALIGNMENT * self.first.judging.rng.randrange(1, 64)
        return upload(self.first.judging, self.first.prepared, shift=shift)


@dataclass(frozen=True)
class TimedCall:
    """One timed call of a candidate, or the last call of a loop."""

    run: ProbeRun
    looped: bool
    """Whether it was a loop of calls; then the reply describes no single call."""
    right: RightBefore
    """What earlier calls of the same candidate gave and was right."""
    backward: Backward | None = None
    """Its backward pass, if it was timed, too."""


class Rule:
    """One rule. Subclasses are frozen dataclasses whose fields are the rule's thresholds.

    The judge calls the methods below for every rule in force, in the catalog's order. A method records
    its checks with ``Findings.record``, which ends the judging at the first check that fails.
    """

    name: ClassVar[str]
    """The rule's name in verdicts, reports and the corpus."""
    says: ClassVar[str]
    """What holds for every accepted candidate; the documentation prints this sentence."""
    stage: ClassVar[Stage] = "correctness"
    """The stage of a verdict that rejects a candidate by this rule."""
    switchable: ClassVar[bool] = True
    """Whether the rule can be left out, to show that it catches something that no other rule does."""
    device: ClassVar[Literal["any", "cpu", "cuda"]] = "any"
    """Where the judge applies the rule."""
    main: ClassVar[bool] = False
    """Whether its probes run before ``check_case``."""

    @property
    def version(self) -> int:
        """Which version of the rule this is, see ``standing.CHANGES``."""
        return versions([self.name])[self.name]

    @property
    def seed(self) -> int:
        """Added to the first seed, so that inputs differ from those of other rules."""
        return seed_of(self.name)

    def check_source(self, source: str, findings: Findings) -> None:
        """Checks the kernel module's source, before any of it runs."""

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns probes to run for a case. A wrong output at one of them breaks this rule."""
        return ()

    def interpreted_probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns probes to run in Triton's interpreter where all others run on a GPU."""
        return ()

    def check_run(self, run: ProbeRun) -> None:
        """Checks one watched call."""

    def check_case(self, case: CaseRun) -> None:
        """Checks a case by running a probe again in ways that make no difference to an honest kernel."""

    def check_device_work(self, run: ProbeRun) -> None:
        """Checks what the GPU does during a call, before the call is timed."""

    def check_timed_call(self, call: TimedCall) -> None:
        """Checks a timed call."""

    def check_measurement(self, run: ProbeRun, measured: Measurement) -> None:
        """Checks the times of one case."""

    def check_speedups(
        self, timings: Sequence[Timing], least: float, baseline: BaselineChoice, findings: Findings
    ) -> None:
        """Checks the speedups of all cases; see ``rules.timing``."""
