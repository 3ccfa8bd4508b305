"""Plots as inline SVG. matplotlib draws them; their colours are those of the page, in light and dark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

from pytest_kernelllm.report.html.code import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"#010203": "var(--text)", "#040506": "var(--line)", "#070809": "var(--eager)"}
"""What matplotlib draws with, and the variable of ``page.css`` that replaces it."""
_TEXT, _LINE, _POINT = _COLOURS

_CROWDED = 300
"""Range of an axis from which on the names of lines beside each other would overlap."""

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


@dataclass(frozen=True)
class RooflinePoint:
    """One timed case."""

    label: str
    """What a reader gets to know about it."""
    link: str
    """The place on the page that it links to, such as ``#target-3``."""
    least: float
    """µs that the GPU needs at least."""
    taken: float
    """µs that the kernel takes."""


def roofline(points: Sequence[RooflinePoint]) -> Markup:
    """Returns the time taken over the least time, both on a logarithmic scale: the roofline is the diagonal."""
    from matplotlib.ticker import LogLocator

    figure, axes = _axes()
    least, taken = [p.least for p in points], [p.taken for p in points]
    low, high = min(*least, *taken) / 1.5, max(*least, *taken) * 1.5
    axes.plot([low, high], [low, high], color=_TEXT, linewidth=1)
    for factor in (2, 4):
        axes.plot([low, high], [low * factor, high * factor], color=_LINE, linewidth=1, linestyle=(0, (4, 3)))
    apart = high / low < _CROWDED
    for factor in (1, 2, 4) if apart else (1,):
        place = high / factor, high
        axes.annotate(
            f"{100 // factor} %", place, (0, 3), textcoords="offset points", ha="center", color=_TEXT
        )
    dots = axes.scatter(least, taken, s=26, color=_POINT, alpha=0.8, linewidths=0, zorder=3)
    dots.set_urls([point.link for point in points])
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set(xlabel="least time this GPU needs, µs", ylabel="time the kernel takes, µs")
    subs = (1, 2, 5) if high / low < 100 else (1,)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    labels = {point.link: [p.label for p in points if p.link == point.link] for point in points}
    return _svg(figure, labels)


def _axes() -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("none")
    figure.set_facecolor("none")
    axes.grid(color=_LINE, linewidth=0.6, alpha=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_LINE)
    axes.tick_params(which="both", color=_LINE, labelcolor=_TEXT)
    axes.xaxis.label.set_color(_TEXT)
    axes.yaxis.label.set_color(_TEXT)
    return figure, axes


def _svg(figure: Figure, labels: dict[str, list[str]]) -> Markup:
    """The figure as an element of a page, with a title on each link."""
    import matplotlib

    file = StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "kernelllm", "svg.fonttype": "none", "font.size": 10}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    for name, address in (("", _SVG), ("xlink", _XLINK)):
        ElementTree.register_namespace(name, address)
    root = ElementTree.fromstring(file.getvalue())
    for link in root.iter(f"{{{_SVG}}}a"):
        waiting = labels.get(link.get(f"{{{_XLINK}}}href", ""))
        if waiting:
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = visible(waiting.pop(0))
            link.insert(0, title)
            link.set("tabindex", "-1")  # the table has the same links
    for name in ("width", "height"):
        del root.attrib[name]
    for parent in list(root.iter()):  # a style here would hold for the whole page
        for child in [each for each in parent if each.tag.endswith(("}style", "}metadata"))]:
            parent.remove(child)
    text = ElementTree.tostring(root, encoding="unicode")
    for drawn, variable in _COLOURS.items():
        text = text.replace(drawn, variable)
    text = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", text)  # the page's font
    return Markup(re.sub(r' id="[\w.]+_\d+"', "", text))
