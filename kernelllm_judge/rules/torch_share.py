"""The rule ``torch's share``: torch does no more than views, allocation, casts and small glue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelllm_judge.core.records import Check
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.rules.rule import CaseRun, Rule
from kernelllm_judge.run.torch_work import torch_work, vendor_kinds


@dataclass(frozen=True)
class TorchShare(Rule):
    """Torch does little work besides what the target itself leaves to a vendor library."""

    name = "torch's share"
    says = "torch does no more of the work than views, allocation, casts and small glue"

    share: float = 0.25
    """Elements that torch may compute on in a call, besides layout and vendor libraries, as a share of
    the largest tensor: enough for a scale or a bias, too little for a pass over the whole output."""
    least: int = 16
    """Elements that torch may compute on in any call, however small."""

    def check_case(self, case: CaseRun) -> None:
        """Sums up the operations that the worker reports."""
        operations = case.first.reply.get("operations")
        if not isinstance(operations, dict) or not all(
            isinstance(n, int) and n >= 0 for n in operations.values()
        ):
            raise WorkerDied("its reply to `run` is not a valid report")
        work = torch_work(operations, vendor_kinds(case.original.operations))
        size = case.original.largest
        excess = self.excess(work, size)
        detail = f"{excess}, at {case.first.where}" if excess else ""
        measured = round(sum(work.values()) / max(size, 1), 4)
        check = Check("torch's share of the work", not excess, measured, self.share, detail)
        case.first.judging.findings.record(self.name, check)

    def excess(self, work: Mapping[str, int], size: int) -> str:
        """Describes what torch does too much of; empty if its work is small.

        Args:
            work: elements that each operation touched, see ``torch_work``.
            size: elements of the call's largest input or output.
        """
        if sum(work.values()) <= max(self.share * size, self.least):
            return ""
        largest = sorted(work, key=lambda op: -work[op])[:3]
        listed = ", ".join(f"{op.removeprefix('aten::')} on {work[op]:,} elements" for op in largest)
        return f"torch does the work: {listed}, of {size:,} in the call"
