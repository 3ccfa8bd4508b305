"""``kernelllm bench``: runs the benchmark, shows progress and the table, and writes JSON and plot."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.records import Target
from pytest_kernelllm.passk.bench import bench
from pytest_kernelllm.passk.errors import BenchError
from pytest_kernelllm.passk.plot import check_plot, write_plot
from pytest_kernelllm.passk.scores import Benchmark
from pytest_kernelllm.passk.table import render_benchmark
from pytest_kernelllm.report.progress import target_progress
from pytest_kernelllm.session.session import open_session

NARROWEST = 110
"""Columns of a table that goes to a file or a pipe."""


def measure(
    root: Path,
    settings: Settings,
    targets: Sequence[Target],
    at: str | None,
    out: str | None,
    plot: Path | None,
) -> bool:
    """Runs a benchmark, and prints and writes what it found.

    Args:
        root: the project root.
        settings: name the generator and the number of samples.
        targets: to measure it with.
        at: each k of pass@k, with commas; None chooses.
        out: file for the JSON; ``-`` is standard output, in the table's place.
        plot: file for the picture.

    Returns:
        Whether every target was counted, every request answered and every verdict reached.

    Raises:
        BenchError: arguments that make no sense.
        SessionError: nothing can be generated or judged here.
        GenerateError: the generator cannot work.
        ConfigError: the settings ask for more isolation than this machine can give.
    """
    ks = parse_at(at, settings.samples)
    if plot is not None:
        check_plot(plot)
    with (
        target_progress(len(targets)) as (doing, done),
        open_session(root, settings, progress=doing) as session,
    ):
        benchmark = bench(session, targets, ks, done=lambda _: done())
    if out != "-":
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else NARROWEST
        print(render_benchmark(benchmark, max(width, 80), sys.stdout.isatty()))
    if out:
        _write_json(out, benchmark)
    if plot is not None and benchmark.targets:
        write_plot(plot, benchmark)
    for problem in session.store.problems:
        print(f"kernelllm: {problem}", file=sys.stderr)
    return not (benchmark.left_out or benchmark.total.inconclusive or benchmark.total.unanswered)


def parse_at(text: str | None, samples: int) -> list[int]:
    """Returns each k of pass@k, rising, each once.

    Args:
        text: whole numbers with commas; None takes 1, 10 and 20 as far as they are drawn, and the last.
        samples: completions drawn a target, at least one.

    Raises:
        BenchError: not a whole number from 1 to ``samples``.
    """
    if text is None:
        return sorted({k for k in (1, 10, 20) if k < samples} | {samples})
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isdecimal() and 1 <= int(part) <= samples):
            raise BenchError(
                f"--at takes whole numbers from 1 to the {samples} completions drawn, not {part!r}."
            )
    return sorted({int(part) for part in parts})


def _write_json(out: str, benchmark: Benchmark) -> None:
    text = json.dumps(benchmark.to_json(), indent=1, allow_nan=False)
    if out == "-":
        print(text)
        return
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
