"""The end of a run: the table, where the patches are, and what went wrong with the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_kernelllm.core.history import Run
from pytest_kernelllm.core.narrow import advice
from pytest_kernelllm.core.outcome import Outcome, best
from pytest_kernelllm.core.usage import Usage
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.report.fitted import terminal_width
from pytest_kernelllm.report.spent import silent, spent
from pytest_kernelllm.report.table import render_table


def write_summary(
    terminal: Any,
    store: Path,
    outcomes: Sequence[Outcome],
    patches: Mapping[str, str],
    problems: Sequence[str],
    scores: Sequence[str] = (),
    usage: Usage | None = None,
    stale: Collection[str] = (),
    recorded: Run | None = None,
) -> None:
    """Writes the closing section to pytest's terminal reporter.

    Args:
        scores: lines of a project's or a plugin's own (the hook ``pytest_kernelllm_summary``).
        usage: how busy a GPU's slots were; None without one, and where nothing was judged.
        stale: ``Target.id`` of each target that changed since its kernel was adopted.
        recorded: what was remembered of this run's adopted kernels.
    """
    terminal.section("kernelllm")
    terminal.write_line(render_table(outcomes, patches, terminal_width(), terminal.hasmarkup, stale))
    known = sum(o.cached for o in outcomes)
    judged = sum(o.verdict is not None for o in outcomes)
    terminal.write_line("")
    for line in scores:
        terminal.write_line(line)
    if line := repairs(outcomes):
        terminal.write_line(line)
    for each in spent(outcomes):
        terminal.write_line(f"{each.generator}: {each}.")
    terminal.write_line(f"{counted(judged, 'verdict')}, {known} of them known before, in {store.name}/.")
    if usage:
        terminal.write_line(str(usage))
    if patches:
        folder = Path(next(iter(patches.values()))).parent
        terminal.write_line(
            f"{counted(len(patches), 'patch')} in {folder}/: `git apply` one, or `kernelllm apply` for all of them."
        )
        if untimed(outcomes, patches):
            terminal.write_line(UNTIMED)
    for line in advice(outcomes):
        terminal.write_line(line)
    for line in comparisons(outcomes, recorded):
        terminal.write_line(line)
    for problem in (*silent(outcomes), *problems):
        terminal.write_line(problem, yellow=True)


UNTIMED = (
    "A patch with unknown speed is proven, not timed: a GPU, such as the Action's job, decides whether it is faster; "
    "--kernelllm-require-timing writes none without."
)


def untimed(outcomes: Sequence[Outcome], patches: Mapping[str, str]) -> bool:
    """Whether a patch adopts a kernel that was never timed."""
    own = [[each for each in outcomes if each.target.id == identity] for identity in patches]
    return any(winner.verdict and not winner.verdict.timing for winner in map(best, own) if winner)


def comparisons(outcomes: Sequence[Outcome], recorded: Run | None) -> list[str]:
    """Returns why timed kernels were not compared with recorded runs, each reason once, and where this run is recorded."""
    names: dict[str, list[str]] = {}
    for outcome in outcomes:
        history, timed = outcome.history, outcome.verdict is not None and outcome.verdict.timing
        if history and history.note and not history.comparison and timed:
            names.setdefault(history.note, []).append(outcome.target.name)
    lines = [f"{', '.join(own)}: {note}." for note, own in names.items()]
    if recorded and (recorded.name or any(kernel.timing for kernel in recorded.kernels)):
        named = f" ({recorded.name})" if recorded.name else ""
        lines.append(
            f"{counted(len(recorded.kernels), 'adopted kernel')} recorded as run {recorded.id}{named}."
        )
    return lines


def repairs(outcomes: Sequence[Outcome]) -> str:
    """Returns what repair achieved: how many first answers were right, and how many are after it; empty without any."""
    sent_back = [outcome for outcome in outcomes if outcome.rounds]
    failed = sum(outcome.unanswered for outcome in outcomes)
    again = f"{counted(failed, 'request')} failed; run again to repeat." if failed else ""
    if not sent_back:
        return again
    answers = sum(len(outcome.rounds) - 1 for outcome in sent_back)

    def right(each: Outcome) -> bool:
        return each.verdict is not None and each.verdict.correct

    first = sum(right(outcome.rounds[0]) for outcome in sent_back)
    now = sum(map(right, sent_back))
    line = (
        f"{counted(len(sent_back), 'answer')} sent back with the verdict: {first} right at first, {now} after "
        f"{counted(answers, 'repair')}."
    )
    return f"{line} {again}".rstrip()
