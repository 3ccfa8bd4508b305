"""Draws what the processes of a run did: as a page with a lane for each thread, or as a trace that Perfetto reads."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from kernelllm_judge.core.spans import JUDGING, Span

WIDTH, ROW, MARGIN = 1600, 18, 230
"""Of the picture and its margin for names, and the height of a span, in pixels."""

MOST_TICKS = 20

STYLE = """
:root { color-scheme: light dark; }
body { margin: 2rem; font: 15px/1.5 system-ui, sans-serif; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .1rem .8rem; text-align: right; }
th:first-child, td:first-child { text-align: left; } tr + tr { border-top: 1px solid #8884; }
.lanes { overflow-x: auto; } svg text { fill: currentColor; font-size: 11px; } svg .in { fill: #000; pointer-events: none; }
line { stroke: #8886; }
"""


@dataclass(frozen=True)
class Lane:
    """The spans of one thread, by their beginning, each with how many others it lies in."""

    process: str
    thread: str
    spans: tuple[tuple[Span, int], ...]

    @property
    def depth(self) -> int:
        """How many spans lie in each other."""
        return 1 + max(inside for _, inside in self.spans)

    @property
    def own_seconds(self) -> dict[str, float]:
        """By kind, the seconds of spans without those of the spans inside them."""
        seconds: defaultdict[str, float] = defaultdict(float)
        around: list[Span] = []
        for span, inside in self.spans:
            del around[inside:]
            seconds[span.what] += span.seconds
            if around:
                seconds[around[-1].what] -= span.seconds
            around.append(span)
        return seconds


def lanes(spans: Iterable[Span]) -> list[Lane]:
    """Returns the lanes of all threads that did something, those of a process together, in the order of their beginnings."""
    threads: defaultdict[tuple[str, str], list[Span]] = defaultdict(list)
    begun: dict[str, int] = {}
    for span in sorted(spans, key=lambda each: (each.begin, -each.end)):
        begun.setdefault(span.process, len(begun))
        threads[span.process, span.thread].append(span)
    by_process = sorted(threads.items(), key=lambda item: begun[item[0][0]])
    return [Lane(process, thread, _nested(own)) for (process, thread), own in by_process]


def _nested(spans: Sequence[Span]) -> tuple[tuple[Span, int], ...]:
    nested, around = [], list[Span]()
    for span in spans:
        while around and around[-1].end <= span.begin:
            around.pop()
        nested.append((span, len(around)))
        around.append(span)
    return tuple(nested)


def trace(spans: Sequence[Span]) -> str:
    """Returns the run in Chrome's trace event format, which https://ui.perfetto.dev reads."""
    found = lanes(spans)
    start = min((span.begin for span in spans), default=0.0)
    processes = {name: number for number, name in enumerate(dict.fromkeys(lane.process for lane in found), 1)}
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
        for name, number in processes.items()
    ]
    for tid, lane in enumerate(found, 1):
        place = {"pid": processes[lane.process], "tid": tid}
        events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": lane.thread}})
        events += [
            {
                "ph": "X",
                "name": span.what,
                "cat": "kernelllm",
                "ts": round((span.begin - start) * 1e6),
                "dur": round(span.seconds * 1e6),
                **place,
                "args": {"target": span.target},
            }
            for span, _ in lane.spans
        ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, indent=1)


def page(spans: Sequence[Span]) -> str:
    """Returns the run as an HTML page without scripts: where the seconds were, how idle slots were, and the lanes."""
    found = lanes(spans)
    start = min((span.begin for span in spans), default=0.0)
    seconds = max((span.end for span in spans), default=0.0) - start
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for lane in found:
        for what, spent in lane.own_seconds.items():
            sums[what, lane.process.rstrip("0123456789 ")] += spent
    longest = sorted(sums.items(), key=lambda item: -item[1])
    kinds = _table(("what was done", "by", "seconds"), [(*kind, f"{spent:.2f}") for kind, spent in longest])
    processes = [_shares(*each, start + seconds) for each in _by_process(found)]
    slots = _table(("process", "seconds", "judging", "idle"), processes)
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Timeline</title>'
    policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    return (
        f"{head}{policy}<style>{STYLE}</style><h1>{seconds:.1f} s, from the start to the last line</h1>"
        f'<div class="lanes">{_picture(found, start, seconds)}</div>{kinds}{slots}\n'
    )


def write_timeline(path: Path, spans: Sequence[Span]) -> None:
    """Writes the trace where the file's name ends in ``.json``, else the page; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(trace(spans) if path.suffix == ".json" else page(spans), encoding="utf-8")


def _by_process(found: Sequence[Lane]) -> list[tuple[str, list[Lane]]]:
    names = dict.fromkeys(lane.process for lane in found)
    return [(name, [lane for lane in found if lane.process == name]) for name in names]


def _shares(process: str, own: Sequence[Lane], end: float) -> tuple[str, ...]:
    """How busy a process was from its beginning to the run's end; idle is when none of its threads did anything."""
    spans = [span for lane in own for span, _ in lane.spans]
    until = min(span.begin for span in spans)
    seconds, busy = end - until, 0.0
    for span in sorted(spans, key=lambda each: each.begin):
        busy += max(0.0, span.end - max(until, span.begin))
        until = max(until, span.end)
    judging = sum(span.seconds for span in spans if span.what == JUDGING)
    shares = [f"{100 * part / seconds:.0f} %" if seconds else "–" for part in (judging, seconds - busy)]
    return process, f"{seconds:.2f}", *shares


def _picture(found: Sequence[Lane], start: float, seconds: float) -> str:
    scale = (WIDTH - MARGIN) / (seconds or 1.0)
    colours = {
        what: 47 * number % 360
        for number, what in enumerate(sorted({span.what for lane in found for span, _ in lane.spans}))
    }
    parts, top = [], ROW * 2
    for lane in found:
        name = f"{lane.process}: {lane.thread}"
        parts.append(f'<text x="4" y="{top + 13}">{escape(name[:38])}<title>{escape(name)}</title></text>')
        parts.append(f'<line x1="0" x2="{WIDTH}" y1="{top}" y2="{top}"/>')
        for span, inside in lane.spans:
            x, y = MARGIN + (span.begin - start) * scale, top + 1 + inside * ROW
            width = max(span.seconds * scale, 0.5)
            title = f"{span.what} {span.target}: {span.seconds:.3f} s, from {span.begin - start:.3f} s"
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 2}" rx="2" '
                f'fill="hsl({colours[span.what]} 65% 70%)"><title>{escape(title)}</title></rect>'
            )
            if width > 7 * len(span.what):
                parts.append(f'<text class="in" x="{x + 3:.1f}" y="{y + 12}">{escape(span.what)}</text>')
        top += lane.depth * ROW + 4
    step = next(s for s in _steps() if seconds / s <= MOST_TICKS)
    for tick in range(int(seconds / step) + 1):
        x = MARGIN + tick * step * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{ROW}" y2="{top}"/>')
        parts.append(f'<text x="{x:.1f}" y="12">{tick * step:g} s</text>')
    return f'<svg width="{WIDTH}" height="{top}" role="img" aria-label="lanes">{"".join(parts)}</svg>'


def _steps() -> Iterable[float]:
    step = 0.1
    while True:
        yield from (step, 2 * step, 5 * step)
        step *= 10


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    return f"<table>{row(head, 'th')}{''.join(row(each, 'td') for each in rows)}</table>"
