"""``kernelllm bench``: runs the benchmark, shows progress and the table, and writes JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_kernelllm.beside.passk.bench import bench
from pytest_kernelllm.beside.passk.problems import BenchError, Problem
from pytest_kernelllm.beside.passk.records import Benchmark, LeftOut
from pytest_kernelllm.beside.passk.table import render_benchmark
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.words import say
from pytest_kernelllm.discover.scan import Scan
from pytest_kernelllm.report.fitted import terminal_width
from pytest_kernelllm.report.progress import live_progress
from pytest_kernelllm.session.session import open_session


def measure(
    root: Path,
    settings: Settings,
    found: Scan,
    problems: Mapping[str, Problem],
    at: str | None = None,
    out: str | None = None,
) -> bool:
    """Runs a benchmark, and prints and writes what it found.

    Args:
        found: the targets, in the order of the report.
        problems: KernelBench's problems by ``Target.path``, if that is the benchmark.
        at: each k of pass@k, with commas; None chooses.
        out: file for the JSON; ``-`` is standard output, in the table's place.

    Returns:
        Whether every target was counted, every request answered and every verdict reached.

    Raises:
        BenchError: arguments that make no sense.
        SessionError: nothing can be generated or judged here.
        GenerateError: the generator cannot work.
        ConfigError: the settings ask for more isolation than this machine can give.
        KeyboardInterrupt: it was interrupted; what was finished is printed and written.
    """
    ks = parse_at(at, settings.samples)
    targets = found.targets
    with (
        live_progress(len(targets)) as (doing, done),
        open_session(root, settings, progress=doing, writers=True) as session,
    ):
        if session.search_in_words:
            say(session.search_in_words)
        benchmark = bench(
            session, targets, ks, problems=problems, missing=_missing(found, problems), done=lambda _: done()
        )
    if out != "-":
        print(render_benchmark(benchmark, terminal_width(), sys.stdout.isatty()))
    if out:
        _write_json(out, benchmark)
    if benchmark.usage:  # apart from the table, which is the same where everything was known
        say(benchmark.usage)
    say(*session.context.store.problems)
    if benchmark.unfinished:
        raise KeyboardInterrupt
    return not (benchmark.left_out or benchmark.total.inconclusive or benchmark.total.unanswered)


def _missing(found: Scan, problems: Mapping[str, Problem]) -> list[LeftOut]:
    """Problems whose files have no target, with the reason."""
    paths = {target.path for target in found.targets}
    reasons = {problem.path: problem.message for problem in found.problems}
    return [
        LeftOut(path, reasons.get(path, "it does not have KernelBench's form"), problem)
        for path, problem in problems.items()
        if path not in paths
    ]


def parse_at(text: str | None, samples: int) -> list[int]:
    """Returns each k of pass@k, rising, each once.

    Args:
        text: whole numbers with commas; None takes 1, 10 and 20 as far as they are drawn, and the last.

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
