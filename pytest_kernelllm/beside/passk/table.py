"""A benchmark as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from pytest_kernelllm.beside.passk.figures import RESULTS, SPEEDS
from pytest_kernelllm.beside.passk.records import Benchmark, Score
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.report.table import rendered


def render_benchmark(benchmark: Benchmark, width: int, color: bool) -> str:
    """Returns the table, one line for each target and one for all, and notes below it.

    Args:
        benchmark: to show.
        width: columns of the terminal.
        color: whether to use terminal colours.
    """
    tables = [_table(benchmark)]
    if benchmark.levels:
        tables += [_levels(benchmark), _decisions(benchmark)]
    if benchmark.total.rounds:
        tables.append(_rounds(benchmark))
    return rendered(width, color, *tables, *notes(benchmark))


def notes(benchmark: Benchmark) -> list[str]:
    """Returns failures by stage, what was translated, inconclusive or left out, and fast_p for the larger k."""
    total = benchmark.total
    lines = []
    if total.failures:
        failed = ", ".join(f"{n} {RESULTS[name]}" for name, n in total.failures.items())
        lines.append(f"failures: {failed}")
    if total.slow:
        lines.append(f"{total.slow} of {total.correct} correct kernels are not fast enough for a suggestion")
    if total.inconclusive:
        lines.append(f"inconclusive, counted as failures: {counted(total.inconclusive, 'verdict')}")
    if total.unanswered:
        lines.append(f"failed and not counted: {counted(total.unanswered, 'request')}; run again to repeat")
    if translated := translation_note(total):
        lines.append(translated)
    if benchmark.timed:
        for k in [p.k for p in total.pass_at][1:]:
            values = "  ".join(f"{f.p:g}: {figure(f.value)}" for f in total.fast if f.k == k)
            lines.append(f"fast_p, best of {k}: {values}")
    for level in benchmark.decisions:
        for what, reasons in (("inconclusive", level.inconclusive), ("failed", level.failed)):
            if reasons:
                named = ", ".join(f"{n} {reason}" for reason, n in reasons.items())
                lines.append(f"level {level.level}, {what}: {named}")
        parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in level.durations.items())
        if parts:
            lines.append(f"level {level.level}, seconds by part: {parts}")
    lines += [f"not counted: {left.label}: {left.reason}" for left in benchmark.left_out]
    if benchmark.unfinished:
        lines.append(f"not finished: {counted(benchmark.unfinished, 'target')}; run again to go on")
    return lines


def translation_note(total: Score) -> str:
    """Returns how many completions were translated, and pass@k without them; empty where none was."""
    if not total.translated:
        return ""
    without = "  ".join(f"pass@{p.k} {figure(p.untranslated)}" for p in total.pass_at)
    return f"{total.translated} of {total.completions} completions were translated; without: {without}"


def figure(value: float | None) -> str:
    """Returns ``0.42``, or a dash where a figure is not known."""
    return "–" if value is None else f"{value:.2f}"


def _table(benchmark: Benchmark) -> Table:
    at = [p.k for p in benchmark.total.pass_at]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=False)
    table.add_column("target", overflow="fold")
    for name in ("n", "candidates", "correct", *(f"pass@{k}" for k in at)):
        table.add_column(name, justify="right")
    if benchmark.timed:
        for p in SPEEDS:
            table.add_column(f"fast_{p:g}@{at[0]}", justify="right")
    for one in benchmark.targets:
        table.add_row(one.label, *_cells(one.score, benchmark.timed))
    table.add_section()
    count = len(benchmark.targets)
    table.add_row(
        f"mean of {counted(count, 'target')}", *_cells(benchmark.total, benchmark.timed), style="bold"
    )
    return table


def _levels(benchmark: Benchmark) -> Table:
    """KernelBench's own figures: one sample a problem, over all problems of a level."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=False)
    table.add_column("KernelBench")
    for name in ("problems", "compiled", "correct"):
        table.add_column(name, justify="right")
    if benchmark.timed:
        for name in ("over eager", "over torch.compile"):
            table.add_column(name, justify="right")
        for fast in benchmark.levels[0].fast:
            table.add_column(f"fast_{fast.p:g}", justify="right")
    for level in benchmark.levels:
        counts = [str(n) for n in (level.problems, level.compiled, level.correct)]
        times = [figure(level.speedup), figure(level.speedup_compiled)]
        times += [figure(fast.value) for fast in level.fast]
        table.add_row(f"level {level.level}", *counts, *(times if benchmark.timed else []))
    return table


def _decisions(benchmark: Benchmark) -> Table:
    """What became of the problems, by level and in all."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=False)
    table.add_column("decided")
    names = (
        "problems",
        "decided",
        "accepted",
        "too slow",
        "rejected",
        "nothing to offer",
        "inconclusive",
        "failed",
    )
    for name in (*names, "seconds"):
        table.add_column(name, justify="right")
    rows = [
        (
            *(each.problems, each.decided, each.accepted, each.slow, each.rejected, each.nothing_to_offer),
            *(sum(each.inconclusive.values()), sum(each.failed.values()), each.seconds),
        )
        for each in benchmark.decisions
    ]
    for each, row in zip(benchmark.decisions, rows, strict=True):
        table.add_row(f"level {each.level}", *(f"{value:.0f}" for value in row))
    if len(rows) > 1:
        table.add_row("all", *(f"{sum(column):.0f}" for column in zip(*rows, strict=True)), style="bold")
    return table


def _rounds(benchmark: Benchmark) -> Table:
    """What repair achieves round by round, beside what as many first answers would."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=False)
    at = [p.k for p in benchmark.total.pass_at]
    table.add_column("repair rounds")
    for name in ("answers", "tokens", "cost"):
        table.add_column(name, justify="right")
    for k in at:
        table.add_column(f"pass@{k}", justify="right")
        table.add_column("drawn instead", justify="right")
    if benchmark.timed:
        table.add_column(f"fast_1@{at[0]}", justify="right")
    for one in benchmark.total.rounds:
        cost = "–" if one.cost is None else f"${one.cost:,.2f}"
        passes = [
            text
            for passed, drawn in zip(one.pass_at, one.instead, strict=True)
            for text in (figure(passed.value), f"{figure(drawn.value)} of {drawn.answers:.1f}")
        ]
        fast = [figure(f.value) for f in one.fast if (f.p, f.k) == (1.0, at[0])] if benchmark.timed else []
        table.add_row(str(one.rounds), str(one.answers), f"{one.tokens:,}", cost, *passes, *fast)
    return table


def _cells(score: Score, timed: bool) -> Sequence[str]:
    counts = [str(n) for n in (score.completions, score.candidates, score.correct)]
    passes = [figure(p.value) for p in score.pass_at]
    fast = [figure(f.value) for f in score.fast if f.k == score.pass_at[0].k] if timed else []
    return [*counts, *passes, *fast]
