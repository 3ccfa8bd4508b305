"""Kernel modules and verdicts as a run leaves them, made without judging anything."""

from dataclasses import replace

from standing_now import NOW

from kernelllm_judge.core.kernel_module import Provenance, compose
from kernelllm_judge.core.records import (
    Candidate,
    Check,
    Environment,
    Ratio,
    Spread,
    Target,
    Timing,
    Verdict,
)

BODY = "def forward(self, x):\n    return x\n"
H200 = Environment("cuda", "NVIDIA H200", "570.86", "sm_90", "2.13.0", "3.7.1", "3.12.4", "7")
INTERPRETER = Environment("cpu", "", "", "sm_90", "2.13.0", "3.7.1", "3.12.4", "7")


def kernel(target: Target, body: str = BODY) -> Candidate:
    """A kernel module for a target."""
    source = compose(Provenance(target.id, target.source_hash, "inductor"), f"{target.name}.", (), body)
    return Candidate(target.id, source, "inductor")


def timed(case: str = "default", speedup: float = 1.83) -> Timing:
    """Times of one case on a GPU."""
    spread = Spread(10.0, 11.0, 12.0)
    ratio = Ratio(speedup, speedup - 0.03, speedup + 0.03)
    return Timing(case, spread, spread, spread, spread, ratio, spread, spread, Ratio(1.2, 1.1, 1.3))


CHECKS = (
    Check("screen", True, 0.0, 0.0),
    Check("output 0 at n=6", True, 3e-07, 2.4e-06),
    Check("output 0 at n=64", True, 1e-07, 2.4e-06),
)


def accepted(candidate: Candidate, speedup: float = 1.83) -> Verdict:
    """Accepted and timed on a GPU."""
    timing = (timed(speedup=speedup),)
    return Verdict(
        "accepted", "timing", "", candidate.kernel_hash, H200, "", CHECKS, timing, ("default",), versions=NOW
    )


def untimed(candidate: Candidate) -> Verdict:
    """Accepted in Triton's interpreter."""
    return replace(accepted(candidate), environment=INTERPRETER, stage="correctness", timing=())
