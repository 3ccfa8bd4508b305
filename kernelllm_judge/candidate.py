"""Judges one candidate for one target: what the pool and ``kernelllm_judge.judge`` do alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelllm_judge.core.measured import Measured
from kernelllm_judge.core.narrowing import following
from kernelllm_judge.core.records import MAPPED, BaselineChoice, Candidate, Check, Completion, Verdict
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.answer_format import format_of
from kernelllm_judge.render.extract import extract
from kernelllm_judge.render.modelnew.mapped_names import mapped_names
from kernelllm_judge.render.render import RenderError, render
from kernelllm_judge.target.live import LiveTarget


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
        candidate = render(completion, live, judge.constructors, on_gpu=judge.environment.on_gpu)
    except RenderError as error:
        return "", Verdict("rejected", "render", str(error), "", judge.environment)
    criteria = criteria_of(live, speed)
    candidate, verdict = judge_as_shipped(judge, candidate, criteria)
    if completion.format == "modelnew" and (mapped := mapped_names(extract(text), candidate.source)):
        verdict = replace(verdict, checks=(*verdict.checks, Check(MAPPED, True, None, None, mapped)))
    return candidate.source, verdict


def judge_as_shipped(judge: Judge, candidate: Candidate, criteria: Criteria) -> tuple[Candidate, Verdict]:
    """Judges a candidate, and as long as that is rejected what follows it, see ``narrowing.following``.

    Returns:
        What was judged last, and its verdict; the candidate itself and its own verdict if that is rejected, too.

    Raises:
        launching.ServerFailed: the judge's own processes cannot start.
    """
    first = last = judge.judge(candidate, criteria)
    other = candidate
    while found := following(other, last):
        other, last = found, judge.judge(found, criteria)
    return (candidate, first.unfenced()) if last.verdict == "rejected" else (other, last)


def measure_completion(judge: Judge, live: LiveTarget, completion: Completion) -> Measured:
    """Renders a completion and times it, without judging it.

    Raises:
        launching.ServerFailed: the judge's own processes cannot start.
    """
    try:
        candidate = render(completion, live, judge.constructors, on_gpu=judge.environment.on_gpu)
    except RenderError as error:
        return Measured(error=str(error))
    return judge.measure(candidate, criteria_of(live, Speed()))


def criteria_of(live: LiveTarget, speed: Speed) -> Criteria:
    """Returns what a candidate for a target must achieve, by its marker."""
    return Criteria(
        live,
        tolerance=live.options.tolerance,
        min_speedup=speed.min_speedup,
        baseline=speed.baseline,
        nonfinite=live.options.nonfinite,
        timing=speed.timing,
    )
