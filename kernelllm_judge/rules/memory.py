"""The rules about memory: no access outside of tensors, and outputs in memory of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kernelllm_judge.core.records import Check
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.rules.rule import CaseRun, Rule, SupportedCase
from kernelllm_judge.rules.sizes import corners
from kernelllm_judge.run.call import ProbeRun
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


@dataclass(frozen=True)
class Addresses(Rule):
    """Kernels' addresses are right in all programs; ``addresses`` follows them."""

    name = "addresses"
    says = (
        "at every size that is looked at, in all programs of all launches, loads, stores and atomics lie inside their tensors, "
        "no two programs write one element, and outputs are written whole; as far as addresses do not depend on data"
    )


@dataclass(frozen=True)
class Guards(Rule):
    """The guard zones around every tensor are intact, in shared buffers and in the worker's own memory."""

    name = "guards"
    says = "nothing is written before or after any tensor"

    def check_run(self, run: ProbeRun) -> None:
        """Checks the judge's guard zones, and those that the worker reports."""
        reported = run.reply.get("broken")
        broken = (
            [str(item)[:200] for item in reported]
            if isinstance(reported, list)
            else ["at an unreadable place"]
        )
        if not run.judging.allocator.intact():
            broken.append("before or behind one of its inputs, parameters or outputs")
        sentence = f"it writes {', and '.join(broken)}, at {run.where}"
        run.judging.findings.require(self.name, "guard zones", not broken, sentence)


@dataclass(frozen=True)
class Aliasing(Rule):
    """Outputs share memory with inputs and with each other only where the original's do."""

    name = "aliasing"
    says = "outputs share memory with inputs and with each other only where the original's do"

    def check_case(self, case: CaseRun) -> None:
        """Compares the overlapping tensors that the worker reports with the original's."""
        pairs = case.first.reply.get("shared")
        if not isinstance(pairs, list) or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
            raise WorkerDied("its reply to `run` is not a valid report")
        extra = [pair for pair in pairs if pair not in case.original.shared]
        broken = (
            f"{extra[0][1]!s:.80} shares memory with {extra[0][0]!s:.80} at {case.first.where}"
            if extra
            else ""
        )
        case.first.judging.findings.require(self.name, "memory of its own", not extra, broken)


@dataclass(frozen=True)
class MemoryHeld(Rule):
    """Outputs are no views of much larger buffers, which would stay allocated as long as the outputs."""

    name = "memory held"
    says = "outputs keep no more memory alive than the original's, or than twice their own size"

    factor: int = 2
    """Bytes of the buffers that outputs lie in, as a multiple of the outputs' own…"""
    free: int = 1 << 16
    """…plus this many."""

    def check_case(self, case: CaseRun) -> None:
        """Compares the bytes that the worker reports with the original's."""
        held = case.first.reply.get("held")
        if not isinstance(held, int) or held < 0:
            raise WorkerDied("its reply to `run` is not a valid report")
        own = sum(leaf.nbytes for leaf in case.first.prepared.expected.original)
        allowed = max(case.original.held, self.factor * own + self.free)
        broken = f"its outputs of {own:,} bytes keep {held:,} bytes alive, at {case.first.where}"
        passed = held <= allowed
        check = Check("memory held by outputs", passed, float(held), float(allowed), "" if passed else broken)
        case.first.judging.findings.record(self.name, check)
