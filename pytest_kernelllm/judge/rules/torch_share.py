"""The rule ``torch's share``: torch does no more of the work than views, allocation, casts and small glue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_kernelllm.core.records import Check
from pytest_kernelllm.judge.handle import WorkerDied
from pytest_kernelllm.judge.rules.rule import CaseRun, Rule
from pytest_kernelllm.judge.run.torch_work import torch_work, vendor_kinds


@dataclass(frozen=True)
class TorchShare(Rule):
    """Torch does little beyond what the target itself leaves to a vendor's library."""

    name = "torch's share"
    statement = "torch does no more of the work than views, allocation, casts and small glue"

    share: float = 0.25
    """Elements that torch may compute on in a call, beyond layout and vendor's work, as a share of its largest
    tensor: a scale, a mask or a bias beside the kernel, but no pass over the whole output in several steps."""
    least: int = 16
    """Elements that glue may touch in any call, however small."""

    def check_case(self, case: CaseRun) -> None:
        """Add up the operations that the worker reports."""
        operations = case.first.reply.get("operations")
        if not isinstance(operations, dict) or not all(
            isinstance(n, int) and n >= 0 for n in operations.values()
        ):
            raise WorkerDied("it answered `run` with something else than a report")
        work = torch_work(operations, vendor_kinds(case.original.operations))
        size = case.original.largest
        excess = self.excess(work, size)
        detail = f"{excess}, at {case.first.where}" if excess else ""
        measured = round(sum(work.values()) / max(size, 1), 4)
        check = Check("torch's share of the work", not excess, measured, self.share, detail)
        case.first.judging.findings.record(self.name, check)

    def excess(self, work: Mapping[str, int], size: int) -> str:
        """What torch does too much of, in words; empty where its work is small.

        Args:
            work: operations with the elements that they touched, see ``torch_work``.
            size: elements of the call's largest input or output.
        """
        if sum(work.values()) <= max(self.share * size, self.least):
            return ""
        largest = sorted(work, key=lambda op: -work[op])[:3]
        listed = ", ".join(f"{op.removeprefix('aten::')} on {work[op]:,} elements" for op in largest)
        return f"torch does the work: {listed}, of {size:,} in the call"
