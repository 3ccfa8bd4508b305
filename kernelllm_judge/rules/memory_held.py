"""The rule ``memory held``: outputs keep no more memory alive than they need."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.core.records import Check
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.rules.rule import CaseRun, Rule


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
