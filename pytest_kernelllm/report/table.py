"""The table a person reads in five seconds: one line for each target."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from rich.markup import escape

from kernelllm_judge.core.records import ADOPTED, Ratio, Timing, mean_ratio
from pytest_kernelllm.core.history import CaseChange
from pytest_kernelllm.core.narrow import narrow
from pytest_kernelllm.core.outcome import Outcome, best, nearest
from pytest_kernelllm.report.fitted import NAME, SENTENCE, Column, class_first, fitted, rendered


def render_table(
    outcomes: Sequence[Outcome],
    patches: Mapping[str, str],
    width: int,
    color: bool,
    stale: Collection[str] = (),
) -> str:
    """Returns the closing table as text.

    Args:
        stale: ``Target.id`` of each target that changed since its kernel was adopted.
    """
    timed = any(o.verdict and o.verdict.timing for o in outcomes)
    speed = [Column("speedup vs eager"), Column("vs compile", drop=2), Column("roofline", drop=3)]
    columns = [Column("target", shorten=NAME), Column("verified/tried", drop=1), *(speed if timed else [])]
    rows = []
    names = {o.target.id: o.target.name for o in outcomes}
    shared = {name for name, count in Counter(names.values()).items() if count > 1}
    for identity, name in names.items():
        own = [o for o in outcomes if o.target.id == identity]
        label = escape(class_first(identity) if name in shared else name)
        rows.append(_row(label, own, patches.get(identity), timed, identity in stale))
    return rendered(width, color, fitted([*columns, Column("result", shorten=SENTENCE)], rows, width))


def _row(label: str, outcomes: Sequence[Outcome], patch: str | None, timed: bool, stale: bool) -> list[str]:
    adopted = next((o for o in outcomes if o.id == ADOPTED), None)
    tried = [o for o in outcomes if o.verdict is not None]
    verified = [o for o in tried if o.verdict is not None and o.verdict.correct]
    shown = (best(outcomes) or adopted or nearest(outcomes)).verdict
    shown = shown if adopted or (shown and shown.correct) else None
    timing = shown.timing if shown else ()
    row = [label, f"{len(verified)}/{len(tried)}"]
    if timed:
        row += [
            _ratio(shown.speedup if shown else None),
            _ratio(shown.speedup_compiled if shown else None),
            _roofline(timing),
        ]
    return [*row, _result(outcomes, adopted, patch, timing, stale)]


def _result(
    outcomes: Sequence[Outcome],
    adopted: Outcome | None,
    patch: str | None,
    timing: Sequence[Timing],
    stale: bool,
) -> str:
    if adopted is not None:
        right = adopted.verdict is not None and adopted.verdict.correct
        state = _adopted(adopted) if right else f"[red]adopted kernel fails:[/] {_why(adopted)}"
        if stale:
            state = "[red]adopted kernel is stale:[/] the module changed, and the original runs"
        state = ", ".join(
            filter(
                None,
                [
                    state,
                    *(_narrow(adopted) if right and not stale else ()),
                    _lacking(outcomes) if right else "",
                ],
            )
        )
        return f"{state}; patch" if patch else state
    if (winner := best(outcomes)) is not None:
        asked = winner.verdict.sizes_asked if winner.verdict else ""
        untimed = f"speed unknown; {asked}" if asked else "speed unknown"
        notes = next((t.note for t in timing if t.note), "") if timing else untimed
        if winner.repaired:
            notes = ", ".join(filter(None, [f"repaired in round {winner.repaired}", notes]))
        notes = ", ".join(filter(None, [notes, *_narrow(winner), _lacking(outcomes)]))
        return f"[green]{'patch' if patch else 'verified'}[/]" + (f", {notes}" if notes else "")
    return _why(nearest(outcomes))


def _narrow(outcome: Outcome) -> Collection[str]:
    return narrow(outcome.target, outcome.candidate.source) if outcome.candidate else ()


def _lacking(outcomes: Sequence[Outcome]) -> str:
    """Says how many candidates do not count because something is missing here, such as ``1 undecided without a GPU``."""
    missing = Counter(o.verdict.lacks for o in outcomes if o.verdict and o.verdict.lacks)
    return ", ".join(f"{count} undecided without {what}" for what, count in missing.items())


def _adopted(outcome: Outcome) -> str:
    history = outcome.history
    if history is None or history.comparison is None:
        return "adopted"
    if history.slower:
        return f"[red]slower than recorded:[/] {_change(history.comparison.worst)}"
    recorded = mean_ratio([case.recorded for case in history.comparison.cases])
    return f"adopted, recorded {recorded.value:.2f}x" if recorded else "adopted"


def _change(case: CaseChange) -> str:
    return f"{case.recorded.value:.2f}x -> {case.now.value:.2f}x"


def _why(outcome: Outcome) -> str:
    return escape(outcome.why)


def _ratio(ratio: Ratio | None) -> str:
    return f"{ratio.value:.2f}x \\[{ratio.low:.2f}, {ratio.high:.2f}]" if ratio else "–"


def _roofline(timing: Sequence[Timing]) -> str:
    return f"{math.prod(t.roofline_share for t in timing) ** (1 / len(timing)):.0%}" if timing else "–"
