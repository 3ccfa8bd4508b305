"""``kernelllm bench``: measures how often a generator's kernels are right, and how fast."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_kernelllm.commands.common import (
    OK,
    REJECTED,
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

HELP = "Measure a generator: pass@k and fast_p over marked targets and files in KernelBench's form. A second run continues the first."


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
    """Runs the command; exit code 0 if every sample counted, 1 without a target, 2 otherwise."""
    settings = settings_of(options)
    found = scan([Path(p) for p in options.paths], Path.cwd(), kernelbench=True)
    for problem in found.problems:
        print(f"kernelllm: {problem}", file=sys.stderr)
    if not found.targets:
        print(f"kernelllm: no target in {' '.join(options.paths)}", file=sys.stderr)
        return REJECTED
    plot = Path(options.plot) if options.plot else None
    try:
        whole = measure(Path.cwd(), settings, found.targets, options.at, options.json, plot)
    except (BenchError, SessionError, GenerateError) as error:
        raise CommandError(str(error)) from None
    return OK if whole else UNJUDGED
