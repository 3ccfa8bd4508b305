"""``kernelllm leaderboard``: makes one page of benchmarks over KernelBench."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kernelllm_judge.core.output_file import output_file
from kernelllm_runtime.record import RecordError
from pytest_kernelllm.beside.passk.leaderboard import Run, render_leaderboard
from pytest_kernelllm.beside.passk.problems import BenchError
from pytest_kernelllm.beside.passk.records import Benchmark
from pytest_kernelllm.beside.passk.theirs import Verdicts, read_verdicts
from pytest_kernelllm.commands.common import OK, CommandError
from pytest_kernelllm.report.html.page import HtmlError, check_html

HELP = (
    "Make one static page of runs of `kernelllm bench --kernelbench`, the best first, beside what KernelBench's own "
    "check says of the same samples."
)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN.json", help="file that `kernelllm bench --json` wrote"
    )
    parser.add_argument(
        "--out", metavar="FILE", type=output_file, required=True, help="page to write (extra: html)"
    )
    parser.add_argument(
        "--theirs",
        nargs=3,
        action="append",
        default=[],
        metavar=("RUN.json", "LEVEL", "EVAL.json"),
        help="KernelBench's own eval_results.json of a run's samples at a level; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    """Writes the page; exit code 0."""
    for name, _, file in options.theirs:
        if Path(name) not in map(Path, options.runs):
            raise CommandError(f"--theirs names {file} for {name}, which is not among the runs.")
    try:
        check_html()
        page = render_leaderboard([_run(Path(each), options.theirs) for each in options.runs])
    except (BenchError, HtmlError) as error:
        raise CommandError(str(error)) from None
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")
    return OK


def _run(path: Path, theirs: list[list[str]]) -> Run:
    try:
        benchmark = Benchmark.from_json(json.loads(path.read_bytes()))
    except OSError as error:
        raise BenchError(
            f"{path} cannot be read ({error.strerror}); name a file of `kernelllm bench --json`."
        ) from None
    except (RecordError, ValueError, TypeError, AttributeError) as error:
        raise BenchError(f"{path} was not written by `kernelllm bench --json`: {error}.") from None
    found: dict[int, Verdicts] = {}
    for name, level, file in theirs:
        if Path(name) == path:
            if level not in {str(each.level) for each in benchmark.levels}:
                raise BenchError(
                    f"{path} has no level {level} of KernelBench, for which --theirs names {file}."
                )
            found[int(level)] = read_verdicts(Path(file))
    return Run(benchmark, found)
