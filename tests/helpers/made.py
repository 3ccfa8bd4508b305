"""Outcomes and benchmarks put together by hand."""

from standing_now import NOW

from kernelllm_judge.core.records import (
    ADOPTED,
    Candidate,
    CandidateId,
    Environment,
    Ratio,
    Spread,
    Target,
    Timing,
    Verdict,
)
from pytest_kernelllm.beside.passk.records import Benchmark, TargetScore
from pytest_kernelllm.beside.passk.scores import score, together
from pytest_kernelllm.core.outcome import Outcome

HERE = Environment("cuda", "H200", "570", "sm_90", "2.13", "3.7", "3.11", "2")


def target(name="Scale"):
    return Target("layers.py", name, 3, "0" * 64, "decorator")


def outcome(
    sample,
    stage,
    *,
    rule="",
    verdict=None,
    speedup=None,
    over_compiled=None,
    translated=False,
    name="Scale",
    generator="local",
):
    """The outcome of a candidate that got as far as ``stage``; of none, where that is ``render``."""
    candidate_id = sample if sample == ADOPTED else CandidateId(generator, sample)
    if stage == "generate":
        return Outcome(target(name), candidate_id, reason="it wrote nothing")
    decided = verdict or ("accepted" if stage == "accepted" else "rejected")
    kernel, eager = Spread(1.0, 1.0, 1.0), Spread(*(speedup or 1.0,) * 3)
    compiled = Spread(*(over_compiled,) * 3) if over_compiled else None
    ratio = Ratio(speedup, speedup, speedup) if speedup else None
    timing = (Timing("default", kernel, eager, kernel, eager, ratio, compiled),) if ratio else ()
    made = Verdict(
        decided,
        "timing" if stage == "accepted" else stage,
        "why",
        "0" * 64,
        HERE,
        rule,
        timing=timing,
        versions=NOW,
    )
    candidate = Candidate(target(name).id, f"# {sample}", generator, translated=translated)
    return Outcome(target(name), candidate_id, None if stage == "render" else candidate, made)


def benchmark(drawn, at=(1, 2)):
    """A benchmark over samples by the target's name."""
    scores = [
        TargetScore(target(name), score(samples, at, timed=True), tuple(samples))
        for name, samples in drawn.items()
    ]
    total = together([s.score for s in scores], at)
    return Benchmark("kernelllm", "facebook/KernelLLM", "abc", 4, HERE, True, tuple(scores), total, ())
