"""The rule ``aliasing``: outputs share memory only where the original's do."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.rules.rule import CaseRun, Rule


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
