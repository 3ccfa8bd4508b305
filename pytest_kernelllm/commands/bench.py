"""``kernelllm bench``: measures how often a generator's kernels are right, and how fast."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_kernelllm.commands.common import (
    OK,
    UNJUDGED,
    CommandError,
    add_generator_options,
    add_judge_options,
    settings_of,
)
from pytest_kernelllm.core.errors import SessionError
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.passk.command import measure
from pytest_kernelllm.passk.errors import BenchError

HELP = (
    "Measure a generator: pass@k and fast_p over marked targets and files in KernelBench's form. "
    "A second run continues the first. "
    "Exit code: 0 every target counted and every candidate decided, 2 some were not or the run failed."
)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files and folders")
    parser.add_argument("-k", "--samples", type=int, metavar="K", help="completions per target (default 4)")
    parser.add_argument(
        "--at",
        metavar="K,K",
        help="each k of pass@k (default 1, 10 and 20 up to the number of samples, and all)",
    )
    add_generator_options(parser)
    add_judge_options(parser)
    parser.add_argument("--json", metavar="FILE", help="write all figures as JSON; - is standard output")
    parser.add_argument("--plot", metavar="FILE", help="draw pass@k over k: FILE.svg or FILE.png")


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 0 if every target was counted and every candidate decided, else 2."""
    settings = settings_of(options)
    for path in options.paths:
        if not Path(path).exists():
            raise CommandError(f"There is no file or folder {path}.")
    found = scan([Path(p) for p in options.paths], Path.cwd(), kernelbench=True)
    for problem in found.problems:
        print(f"kernelllm: {problem}", file=sys.stderr)
    if not found.targets:
        raise CommandError(f"There is no target in {' '.join(options.paths)}.")
    plot = Path(options.plot) if options.plot else None
    try:
        whole = measure(Path.cwd(), settings, found.targets, options.at, options.json, plot)
    except (BenchError, SessionError, GenerateError) as error:
        raise CommandError(str(error)) from None
    return OK if whole and not found.problems else UNJUDGED
