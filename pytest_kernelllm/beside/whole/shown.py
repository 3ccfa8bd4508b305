"""Shows the answer on a terminal, and as a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.markup import escape
from rich.table import Table

import pytest_kernelllm.report.html as html
from pytest_kernelllm.beside.whole.answer import Answer, ChoiceAnswer, RegionAnswer, WayAnswer
from pytest_kernelllm.report.fitted import NAME, SENTENCE, Column, fitted, rendered

REGIONS = ("region", "times", "torch.compile", "kernel", "roofline", "kept, or why not")
CHOICES = ("choice", "gain", "kept, or why not")
WAYS = ("way", "ms", "chosen way is", "error")

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{ answer.model }}</title>
<style>{{ style }}</style>
</head>
<body>
<main>
<h1>{{ answer.model }}</h1>
<p>{{ answer.sentence }}.</p>
{% for head, rows in tables if rows %}
<table>
<thead><tr>{% for name in head %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
{% endfor %}
{% for line in lines %}<p>{{ line }}</p>
{% endfor %}
</main>
</body>
</html>
"""


def shown(answer: Answer, width: int, color: bool) -> str:
    """Returns the answer's tables, at most so wide, and its sentences."""
    parts: list[Table | str] = []
    for head, rows, plain in (
        (REGIONS, list(map(region_cells, answer.regions)), (0, 5)),
        (CHOICES, list(map(choice_cells, answer.choices)), (0, 2)),
        (WAYS, list(map(way_cells, answer.ways)), (0,)),
    ):
        if rows:
            columns = [
                Column(name, drop=4 if name == "roofline" else 0, shorten=_shortening(number, plain))
                for number, name in enumerate(head)
            ]
            parts.append(fitted(columns, [list(map(escape, row)) for row in rows], width))
    return rendered(width, color, *parts, f"{answer.model}: {answer.sentence}.", *lines(answer))


def _shortening(number: int, plain: tuple[int, ...]) -> Callable[[str, int], str] | None:
    return None if number not in plain else NAME if number == 0 else SENTENCE


def lines(answer: Answer) -> list[str]:
    """Returns the sentences below the tables."""
    found = []
    if answer.limit_ms is not None:
        share = f"; {answer.limit_share:.0%} of that is reached" if answer.limit_share is not None else ""
        found.append(
            f"Products, convolutions and attention at the library's speed and all else at the GPU's bandwidth take "
            f"{answer.limit_ms:.2f} ms{share}."
        )
    return [*found, *answer.notes, f"The answer took {answer.seconds:.0f} s."]


def region_cells(region: RegionAnswer) -> tuple[str, ...]:
    """Returns a row of the first table."""
    return (
        f"{region.name} {', '.join(region.places[:2])}",
        f"{region.times}",
        "–" if region.compiled_us is None else f"{region.compiled_us:.1f} µs",
        "–" if region.kernel_us is None else f"{region.kernel_us:.1f} µs",
        "–" if region.roofline is None else f"{region.roofline:.0%}",
        "kept" if region.kept else region.reason,
    )


def choice_cells(choice: ChoiceAnswer) -> tuple[str, ...]:
    """Returns a row of the second table."""
    gain = choice.gain
    times = "–" if gain is None else f"{gain.value:.3f}x [{gain.low:.3f}, {gain.high:.3f}]"
    return choice.name, times, "kept" if choice.kept else choice.reason


def way_cells(way: WayAnswer) -> tuple[str, ...]:
    """Returns a row of the third table."""
    ratio = way.ratio
    return (
        f"{way.name}: {way.reason}" if way.reason else way.name,
        "–" if way.ms is None else f"{way.ms:.3f}",
        "–" if ratio is None else f"{ratio.value:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}]",
        "–" if way.error is None else f"{way.error:.1e}",
    )


def write_page(path: Path, answer: Answer) -> None:
    """Writes the answer as one HTML page that makes no request; ``report.html.page.check_html`` says whether it can be."""
    from jinja2 import Environment
    from markupsafe import Markup

    style = (Path(html.__path__[0]) / "page.css").read_text(encoding="utf-8")
    tables = [
        (REGIONS, list(map(region_cells, answer.regions))),
        (CHOICES, list(map(choice_cells, answer.choices))),
        (WAYS, list(map(way_cells, answer.ways))),
    ]
    template = Environment(autoescape=True, trim_blocks=True).from_string(_PAGE)
    text = template.render(answer=answer, style=Markup(style), tables=tables, lines=lines(answer))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
