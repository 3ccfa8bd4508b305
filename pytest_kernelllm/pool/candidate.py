"""Judges one candidate for one target: what ``kernelllm verify`` and ``pytest_kernelllm.judge`` do alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_kernelllm.core.records import Completion, Verdict
from pytest_kernelllm.discover.live import LiveTarget
from pytest_kernelllm.generate.files import format_of
from pytest_kernelllm.generate.render.render import RenderError, render
from pytest_kernelllm.judge.judge import Criteria, Judge


@dataclass(frozen=True)
class Speed:
    """What is measured, and what is required."""

    timing: bool = True
    """Whether accepted candidates are timed, on a GPU."""
    min_speedup: float = 0.0
    """0 reports the speed and rejects nothing."""
    baseline: Literal["eager", "compile"] = "eager"


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
        The kernel module that was judged, empty if the text cannot be made into one; and the verdict.

    Raises:
        launching.ServerFailed: the judge's own processes cannot start.
    """
    completion = Completion("files", 0, text, format_of(text), note=note)
    try:
        candidate = render(completion, live, on_gpu=judge.environment.device == "cuda")
    except RenderError as error:
        return "", Verdict("rejected", "render", str(error), "", judge.environment)
    options = live.options
    criteria = Criteria(
        live,
        tolerance=options.tolerance,
        min_speedup=speed.min_speedup,
        baseline=speed.baseline,
        nonfinite=options.nonfinite,
        timing=speed.timing,
    )
    return candidate.source, judge.judge(candidate, criteria)
