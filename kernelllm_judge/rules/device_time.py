"""The rule ``device time``: most of a call's GPU time is spent in the candidate's own kernels."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.core.records import Check
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.rules.rule import Rule
from kernelllm_judge.run.call import ProbeRun, hand_over, refuse_failure
from kernelllm_judge.run.original import call_original
from kernelllm_judge.run.torch_work import vendor_kinds

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
        hand_over(run.judging, run.prepared)
        replies = [
            run.judging.worker.request(
                "share", inputs=run.uploaded.arguments, flushes=FLUSHES, release=run.prepared.on_host
            )
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
            or bool(vendor_kinds(call_original(run.prepared, run.uploaded.placed(run.prepared)).operations))
        )
        took = f"{share:.0%} of a call's {whole * 1000.0:.1f} µs on the GPU"
        broken = f"its own kernels take {took}; torch takes the rest"
        check = Check(
            "share of the GPU's time", passed, round(share, 4), self.share, "" if passed else broken
        )
        run.judging.findings.record(self.name, check)
