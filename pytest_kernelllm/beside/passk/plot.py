"""pass@k over k as a picture: one thin line a target, a thick one for their mean. Needs matplotlib (extra ``plot``)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pytest_kernelllm.beside.passk.errors import BenchError
from pytest_kernelllm.beside.passk.estimator import pass_at_k
from pytest_kernelllm.beside.passk.records import Benchmark
from pytest_kernelllm.core.words import counted

FORMATS = (".svg", ".png")


def check_plot(path: Path) -> None:
    """Checks before a long run that its picture can be drawn.

    Raises:
        BenchError: an ending that is not offered, or matplotlib is missing.
    """
    if path.suffix.lower() not in FORMATS:
        raise BenchError(f"{path}: a plot is written as {' or '.join(FORMATS)}.")
    if importlib.util.find_spec("matplotlib") is None:
        raise BenchError("matplotlib is not installed; run `pip install 'pytest-kernelllm[plot]'`.")


def write_plot(path: Path, benchmark: Benchmark) -> None:
    """Draws pass@k: k on a logarithmic axis, pass@k on a linear one. The same benchmark gives the same bytes.

    Args:
        path: ends in ``.svg`` or ``.png``; its folder is made.
        benchmark: with at least one target.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    with matplotlib.rc_context({"svg.hashsalt": "pass@k", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        curves = [_curve(t.score.completions, t.score.correct) for t in benchmark.targets]
        for curve in curves:
            axes.plot(range(1, len(curve) + 1), curve, color="tab:blue", linewidth=0.8, alpha=0.45)
        # As far as every target was drawn: beyond that it would be the mean of fewer.
        average = [sum(values) / len(values) for values in zip(*curves, strict=False)]
        label = f"mean of {counted(len(curves), 'target')}"
        axes.plot(range(1, len(average) + 1), average, color="black", linewidth=2.5, label=label)
        axes.set_xscale("log")
        last = max(map(len, curves), default=1)
        axes.set_xlim(1, max(last, 2))
        axes.set_ylim(-0.02, 1.02)
        ticks = {n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if n <= last} | {last}
        axes.xaxis.set_major_locator(FixedLocator(sorted(ticks)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
        axes.set_xlabel("k")
        axes.set_ylabel("pass@k")
        axes.set_title(benchmark.model or benchmark.generator)
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Neither the date nor the version: a picture under version control changes only with what it shows.
        dull = {"Date": None, "Creator": None} if path.suffix.lower() == ".svg" else {"Software": None}
        figure.savefig(path, metadata=dull)


def _curve(n: int, c: int) -> list[float]:
    """pass@1 to pass@n."""
    return [value for k in range(1, n + 1) if (value := pass_at_k(n, c, k)) is not None]
