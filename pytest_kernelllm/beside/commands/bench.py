"""``kernelllm bench``: measures how often a generator's kernels are right, and how fast."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.output_file import output_file
from kernelllm_runtime.source.resolve import label
from pytest_kernelllm.beside.kernelbook.files import is_data_set
from pytest_kernelllm.beside.kernelbook.read import references
from pytest_kernelllm.beside.passk.command import measure
from pytest_kernelllm.beside.passk.problems import LEVELS, BenchError, Problem, find_problems, parse_levels
from pytest_kernelllm.commands.common import (
    OK,
    UNJUDGED,
    CommandError,
    add_generator_options,
    add_judge_options,
    settings_of,
)
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.words import say
from pytest_kernelllm.discover.scan import Problem as Unread, Scan, scan
from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.store import Store

HELP = (
    "Measure a generator: pass@k and fast_p over marked targets and files in KernelBench's form. "
    "A second run continues the first. "
    "Exit code: 0 every target counted and every candidate decided, 2 some were not or the run failed."
)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files and folders; also data sets in KernelBook's form, FILE.jsonl or FILE.parquet",
    )
    parser.add_argument(
        "--kernelbench",
        nargs="?",
        const=",".join(map(str, LEVELS)),
        metavar="LEVELS",
        help="run over KernelBench's problems instead of paths, such as 1,2 (default: levels 1 to 3)",
    )
    parser.add_argument(
        "--kernelbench-path", metavar="DIR", help="the checkout of KernelBench that holds them"
    )
    parser.add_argument("-k", "--samples", type=int, metavar="K", help="completions per target (default 4)")
    parser.add_argument(
        "--at",
        metavar="K,K",
        help="each k of pass@k (default 1, 10 and 20 up to the number of samples, and all)",
    )
    add_generator_options(parser)
    add_judge_options(parser)
    parser.add_argument(
        "--json", metavar="FILE", type=output_file, help="write all figures as JSON; - is standard output"
    )


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 0 if every target was counted and every candidate decided, else 2."""
    settings = settings_of(options)
    try:
        found, problems = _targets(options, settings)
        say(*found.problems)
        if not found.targets:
            raise CommandError(f"There is no target in {' '.join(options.paths)}.")
        whole = measure(Path.cwd(), settings, found, problems, options.at, options.json)
    except (BenchError, SessionError, GenerateError) as error:
        raise CommandError(str(error)) from None
    return OK if whole and not found.problems else UNJUDGED


def _targets(options: argparse.Namespace, settings: Settings) -> tuple[Scan, dict[str, Problem]]:
    """The targets of the paths; or KernelBench's, with its problems by ``Target.path``."""
    root = Path.cwd()
    if options.kernelbench is None:
        if options.kernelbench_path:
            raise CommandError("--kernelbench-path goes with --kernelbench.")
        if not options.paths:
            raise CommandError("bench takes files and folders, or --kernelbench.")
        for path in options.paths:
            if not Path(path).exists():
                raise CommandError(f"There is no file or folder {path}.")
        return _of_paths([Path(path) for path in options.paths], Store(root, settings.store).path), {}
    if options.paths:
        raise CommandError(
            f"--kernelbench takes its problems from --kernelbench-path, not from {options.paths[0]}."
        )
    levels = parse_levels(options.kernelbench)
    if not options.kernelbench_path:
        raise CommandError(
            "Name KernelBench's problems: --kernelbench-path DIR, a checkout of "
            "https://github.com/ScalingIntelligence/KernelBench."
        )
    problems = find_problems(Path(options.kernelbench_path), levels)
    by_path = {label(path.absolute(), root.absolute()): problem for path, problem in problems.items()}
    return scan(problems, root, kernelbench=True), by_path


def _of_paths(paths: list[Path], store: Path) -> Scan:
    """The targets of files and folders; of a data set, those of the files that its rows are written to."""
    problems: list[Unread] = []
    python: list[Path] = []
    for path in paths:
        if is_data_set(path):
            left_out: dict[int, str] = {}
            python.append(references(path, store / "kernelbook", left_out.__setitem__))
            problems += [Unread(str(path), row, reason) for row, reason in left_out.items()]
        else:
            python.append(path)
    found = scan(python, Path.cwd(), kernelbench=True)
    return Scan(found.targets, (*problems, *found.problems))
