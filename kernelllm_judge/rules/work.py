"""The rules about who does the work: the candidate's own kernels, in every call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelllm_judge.core.records import Check
from kernelllm_judge.findings import Decision, Findings, OutOfMemory
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.rules.rule import CaseRun, Rule, TimedCall
from kernelllm_judge.run.call import (
    Judging,
    ProbeRun,
    Reply,
    Uploaded,
    call,
    hand_over,
    refuse_failure,
    upload,
)
from kernelllm_judge.run.comparison import outputs_pass
from kernelllm_judge.run.original import call_original, torch_work, vendor_kinds
from kernelllm_judge.truth.acceptance import Unasked
from kernelllm_judge.truth.prepared import PreparedProbe
from kernelllm_judge.truth.variations import OTHERS_THAN_GIVEN


@dataclass(frozen=True)
class Launches(Rule):
    """Every call launches a kernel of the candidate."""

    name = "launches"
    says = (
        "every call that is watched or timed by itself, repeated ones too, launches Triton kernels of the "
        "candidate's own"
    )

    def check_run(self, run: ProbeRun) -> None:
        """Checks the number of launches that the worker reports."""
        check_launches(run.reply, f"at {run.where}", run.judging.findings)

    def check_timed_call(self, call: TimedCall) -> None:
        """Checks calls that are timed singly; a loop reports no number of launches."""
        if not call.looped:
            where = f"in the timed loop at {call.run.where}"
            check_launches(call.run.reply, where, call.run.judging.findings)


def check_launches(reply: Reply, where: str, findings: Findings) -> None:
    """Records whether the call that a reply describes launched any kernel.

    Raises:
        Decision: it launched none.
    """
    launched = reply.get("launches")
    busy = isinstance(launched, int) and launched > 0
    findings.require(Launches.name, "launches its kernels", busy, f"it launched no Triton kernel {where}")


@dataclass(frozen=True)
class Decoy(Rule):
    """The kernels that are launched compute the outputs."""

    name = "decoy"
    says = "outputs are wrong when the kernels are left out, at a probe where a wrong output shows"

    def check_case(self, case: CaseRun) -> None:
        """Runs a discriminating probe with kernel launches skipped."""
        judging, prepared = case.first.judging, case.first.prepared
        if prepared.trivial is None:
            right = _right_without_kernels(judging, prepared, case.elsewhere)
            needed = not right or (_computes(case) and _needed_for_others(judging, prepared))
            broken = (
                f"its kernels are decoys: without them the outputs are just as right, at {case.first.where}"
            )
            judging.findings.require(self.name, "outputs need the kernels", needed, broken)


def _computes(case: CaseRun) -> bool:
    """Whether the original does anything that must not be left to torch, so that a kernel has work at all."""
    operations = case.original.operations
    return bool(torch_work(operations, vendor_kinds(operations)))


def _needed_for_others(judging: Judging, given: PreparedProbe) -> bool:
    """Whether other inputs need the kernels: a kernel that clears half of a matrix does nothing to a triangular one.

    Whatever memory keeps from the last call with kernels is of the others when the given inputs are tried again, so
    that no kept result passes for torch's work.
    """
    try:
        others = judging.references.prepare(replace(given.probe, stress=OTHERS_THAN_GIVEN))
    except Unasked:
        return False
    if others.trivial is not None:
        return False
    call(judging, upload(judging, others), others, "watched")
    return _right_without_kernels(judging, given, upload(judging, given)) and not _right_without_kernels(
        judging, others, upload(judging, others)
    )


def _right_without_kernels(judging: Judging, prepared: PreparedProbe, uploaded: Uploaded) -> bool:
    try:
        call(judging, uploaded, prepared, "no kernels")
    except OutOfMemory:
        raise
    except Decision:  # a call that fails without its kernels needs them
        return False
    return outputs_pass(judging, uploaded, prepared)


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


CALLS = 5
"""How often a call is measured; the fastest counts."""

FLUSHES = 16
"""Overwrites of L2 before a call. They keep the GPU busy until the whole call is queued; otherwise the
GPU would wait for launches, and the wait would count as torch's."""


@dataclass(frozen=True)
class DeviceTime(Rule):
    """The candidate's own kernels take most of the GPU time that no vendor library takes.

    Where the target itself calls a vendor library, the candidate may do so, too; then every share passes.
    """

    name = "device time"
    says = "the candidate's own kernels take most of the GPU's time that no vendor library takes"
    stage = "timing"
    device = "cuda"

    share: float = 0.5
    """Least share of a call's GPU time that passes in the candidate's own kernels…"""
    glue_us: float = 25.0
    """…unless the rest takes no longer than this, in µs: a few of torch's own launches."""

    def check_device_work(self, run: ProbeRun) -> None:
        """Measures the GPU time of a call and of the kernel launches in it."""
        hand_over(run.judging)
        replies = [
            run.judging.worker.request("share", inputs=run.uploaded.arguments, flushes=FLUSHES)
            for _ in range(CALLS)
        ]
        for reply in replies:
            refuse_failure(run.judging, reply, run.prepared, f"when its time is measured at {run.where}")
        figures = [(r.get("own"), r.get("all")) for r in replies]
        if not all(isinstance(x, float) and 0 <= x < 1e7 for pair in figures for x in pair):
            raise WorkerDied("its reply to `share` has no valid times")
        own, whole = min(figures, key=lambda pair: float(pair[1] or 0))
        assert own is not None and whole is not None
        share = min(own / whole, 1.0) if whole else 0.0
        others_us = (whole - own) * 1000.0
        passed = (
            share >= self.share
            or others_us <= self.glue_us
            or bool(vendor_kinds(call_original(run.prepared).operations))
        )
        took = f"{share:.0%} of a call's {whole * 1000.0:.1f} µs on the GPU"
        broken = f"its own kernels take {took}; torch takes the rest"
        check = Check(
            "share of the GPU's time", passed, round(share, 4), self.share, "" if passed else broken
        )
        run.judging.findings.record(self.name, check)
