"""Judges one candidate for one target: what the pool and ``pytest_kernelllm.judge`` do alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_kernelllm.core.measured import Measured
from pytest_kernelllm.core.records import BaselineChoice, Candidate, Completion, Verdict
from pytest_kernelllm.discover.live import LiveTarget
from pytest_kernelllm.generate.files import format_of
from pytest_kernelllm.generate.render.render import RenderError, render
from pytest_kernelllm.judge.judge import Criteria, Judge
from pytest_kernelllm.pool.messages import JudgeRequest


@dataclass(frozen=True)
class Speed:
    """What is measured, and what is required."""

    timing: bool = True
    """Whether accepted candidates are timed, on a GPU."""
    min_speedup: float = 0.0
    """0 reports the speed and rejects nothing."""
    baseline: BaselineChoice = "eager"


def judge_candidate(
    judge: Judge, live: LiveTarget, text: str, note: str, speed: Speed
) -> tuple[str, Verdict]:
    """Renders a candidate and judges it.

    Args:
        judge: the judge, started.
        live: the target.
        text: the candidate: a kernel module, or an answer with a ``ModelNew``.
        note: where it comes from, for people.
        speed: what is measured and required.

    Returns:
        The kernel module that was judged, empty if the text cannot be made into one; and the verdict. Where a text
        can be made into several, these are the first that is not rejected, or the likeliest.

    Raises:
        launching.ServerFailed: the judge's own processes cannot start.
    """
    completion = Completion("files", 0, text, format_of(text), note=note)
    try:
        candidate = render(completion, live, on_gpu=judge.environment.device == "cuda")
    except RenderError as error:
        return "", Verdict("rejected", "render", str(error), "", judge.environment)
    criteria = _criteria(live, speed)
    source, verdict = candidate.source, judge.judge(candidate, criteria)
    other = candidate.next
    while verdict.verdict == "rejected" and other is not None:
        if (another := judge.judge(other, criteria)).verdict != "rejected":
            return other.source, another
        other = other.next
    return source, verdict


def judge_source(judge: Judge, live: LiveTarget, request: JudgeRequest, speed: Speed) -> Verdict:
    """Judges a kernel module as it stands, by what its project states about the target.

    Raises:
        launching.ServerFailed: the judge's own processes cannot start.
    """
    criteria = _criteria(live, speed)
    if request.tolerance is not None:
        criteria = replace(criteria, tolerance=request.tolerance)
    if live.options.min_speedup is not None:
        criteria = replace(criteria, min_speedup=live.options.min_speedup)
    candidate = Candidate(live.target.id, request.text, "files", note=request.note)
    return judge.judge(candidate, replace(criteria, adopted=request.adopted))


def measure_completion(judge: Judge, live: LiveTarget, completion: Completion) -> Measured:
    """Renders a completion and times it, without judging it.

    Raises:
        launching.ServerFailed: the judge's own processes cannot start.
    """
    try:
        candidate = render(completion, live, on_gpu=judge.environment.device == "cuda")
    except RenderError as error:
        return Measured(error=str(error))
    return judge.measure(candidate, _criteria(live, Speed()))


def _criteria(live: LiveTarget, speed: Speed) -> Criteria:
    return Criteria(
        live,
        tolerance=live.options.tolerance,
        min_speedup=speed.min_speedup,
        baseline=speed.baseline,
        nonfinite=live.options.nonfinite,
        timing=speed.timing,
    )
