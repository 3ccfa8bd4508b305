"""A benchmark as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from pytest_kernelllm.beside.passk.figures import RESULTS, SPEEDS
from pytest_kernelllm.beside.passk.records import Benchmark, Score
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.report.fitted import NAME, Column, class_first, fitted, rendered


def render_benchmark(benchmark: Benchmark, width: int, color: bool) -> str:
    """Returns the table, one line for each target and one for all, and notes below it."""
    tables = [_table(benchmark, width)]
    if benchmark.levels:
        tables.append(_levels(benchmark, width))
    if benchmark.total.rounds:
        tables.append(_rounds(benchmark, width))
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


def _table(benchmark: Benchmark, width: int) -> Table:
    at = [p.k for p in benchmark.total.pass_at]
    columns = [Column("target", shorten=NAME), Column("n", drop=1), Column("candidates", drop=20)]
    columns += [Column("correct", drop=2), *(Column(f"pass@{k}", drop=n) for n, k in enumerate(at))]
    if benchmark.timed:
        columns += [Column(f"fast_{p:g}@{at[0]}", drop=10 + n) for n, p in enumerate(SPEEDS)]
    rows = [
        [escape(class_first(one.label)), *_cells(one.score, benchmark.timed)] for one in benchmark.targets
    ]
    mean = f"mean of {counted(len(rows), 'target')}"
    return fitted(columns, [*rows, [mean, *_cells(benchmark.total, benchmark.timed)]], width, total=True)


def _levels(benchmark: Benchmark, width: int) -> Table:
    """KernelBench's own figures: one sample a problem, over all problems of a level."""
    columns = [Column("KernelBench", shorten=NAME), Column("problems", drop=1), Column("compiled", drop=2)]
    columns.append(Column("correct"))
    if benchmark.timed:
        columns += [Column("over eager", drop=3), Column("over torch.compile", drop=4)]
        columns += [Column(f"fast_{fast.p:g}", drop=5 + n) for n, fast in enumerate(benchmark.levels[0].fast)]
    rows = []
    for level in benchmark.levels:
        counts = [str(n) for n in (level.problems, level.compiled, level.correct)]
        times = [figure(level.speedup), figure(level.speedup_compiled)]
        times += [figure(fast.value) for fast in level.fast]
        rows.append([f"level {level.level}", *counts, *(times if benchmark.timed else [])])
    return fitted(columns, rows, width)


def _rounds(benchmark: Benchmark, width: int) -> Table:
    """What repair achieves round by round."""
    at = [p.k for p in benchmark.total.pass_at]
    columns = [Column("repair rounds"), Column("answers", drop=1), Column("tokens", drop=9)]
    columns += [Column("cost", drop=8), *(Column(f"pass@{k}", drop=n) for n, k in enumerate(at))]
    if benchmark.timed:
        columns.append(Column(f"fast_1@{at[0]}", drop=7))
    rows = []
    for one in benchmark.total.rounds:
        cost = "–" if one.cost is None else f"${one.cost:,.2f}"
        passes = [figure(passed.value) for passed in one.pass_at]
        fast = [figure(f.value) for f in one.fast if (f.p, f.k) == (1.0, at[0])] if benchmark.timed else []
        rows.append([str(one.rounds), str(one.answers), f"{one.tokens:,}", cost, *passes, *fast])
    return fitted(columns, rows, width)


def _cells(score: Score, timed: bool) -> Sequence[str]:
    counts = [str(n) for n in (score.completions, score.candidates, score.correct)]
    passes = [figure(p.value) for p in score.pass_at]
    fast = [figure(f.value) for f in score.fast if f.k == score.pass_at[0].k] if timed else []
    return [*counts, *passes, *fast]
