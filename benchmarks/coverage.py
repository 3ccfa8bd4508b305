"""How many of KernelBench's problems get a candidate of the Inductor generator, and how long it takes. Needs no GPU.

    python benchmarks/coverage.py --kernelbench CHECKOUT [--levels 1 2 3] [--arch sm_90] [--jobs 2]

Each problem is traced at its own sizes, without data, and its first candidate is rendered. Nothing is judged. Prints a line
for each problem without a candidate, with the reason, and a table of the levels.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from pytest_kernelllm.beside.passk.problems import find_problems


@dataclass(frozen=True)
class Written:
    """What became of one problem."""

    level: str
    name: str
    reason: str
    """Why there is no candidate; empty if there is one."""
    loading: float
    """Seconds to import the problem, build its module and try it."""
    writing: float
    """Seconds for the candidate."""


def written(arch: str, file: Path) -> Written:
    """Writes the first candidate of a problem."""
    from kernelllm_judge.render.errors import RenderError
    from kernelllm_judge.render.render import render
    from kernelllm_judge.target.errors import TargetError
    from kernelllm_judge.target.live import load_target
    from pytest_kernelllm.beside.verify.pairs import find_reference
    from pytest_kernelllm.generate.inductor import cases
    from pytest_kernelllm.generate.inductor.device import gpu_for
    from pytest_kernelllm.generate.inductor.variants import VARIANTS

    start = middle = time.perf_counter()
    reason = ""
    try:
        target = find_reference(str(file))
        if isinstance(target, str):
            raise TargetError(target)
        live = load_target(file.parent, target)
        middle = time.perf_counter()
        [completion] = cases.completions(live, gpu_for(arch), VARIANTS, (0,))
        reason = "" if completion.text else completion.note
        if completion.text:
            render(completion, live)
    except (TargetError, RenderError) as error:
        reason = str(error)
    end = time.perf_counter()
    return Written(file.parent.name, file.stem, reason, middle - start, end - middle)


def found(files: list[Path], arch: str, jobs: int) -> Iterator[Written]:
    """Yields what became of each problem, in order; progress goes to standard error."""
    # Fresh processes now and then, since modules of gigabytes leave memory behind.
    with get_context("spawn").Pool(jobs, maxtasksperchild=10) as pool:
        for number, each in enumerate(pool.imap(partial(written, arch), files), 1):
            print(f"\r{number} of {len(files)}", end="", file=sys.stderr, flush=True)
            yield each
    print(file=sys.stderr)


def main() -> int:
    """Prints the reasons and the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--levels", nargs="+", type=int, default=[1, 2, 3], metavar="LEVEL")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    by_level = defaultdict(list)
    for each in found(list(find_problems(options.kernelbench, options.levels)), options.arch, options.jobs):
        by_level[each.level].append(each)
        if each.reason:
            print(f"{each.level}/{each.name}: {each.reason}", flush=True)
    print("\n| level | problems | with a candidate | s to load, median, most | s to write, median, most |")
    print("|---|---:|---:|---:|---:|")
    for level, problems in by_level.items():
        had = [each for each in problems if not each.reason]
        times = [
            f"{statistics.median(seconds):.1f}, {max(seconds):.1f}"
            for seconds in ([each.loading for each in problems], [each.writing for each in had])
        ]
        print(f"| {level} | {len(problems)} | {len(had)} | {' | '.join(times)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
