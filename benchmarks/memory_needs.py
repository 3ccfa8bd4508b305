"""The GPU memory that the judge leases for KernelBench's problems at their own sizes. Needs no GPU, and allocates no inputs.

    python benchmarks/memory_needs.py --kernelbench CHECKOUT [--levels 1 2] [--budget 24]

A line for each problem that does not fit into the budget, with what it needs; then how many fit.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelllm_judge.memory import CallBytes, most
from kernelllm_judge.policy import Policy
from kernelllm_judge.target.live import load_target
from kernelllm_judge.truth.needs import call_bytes
from pytest_kernelllm.beside.verify.pairs import find_reference

GIB = 1 << 30


def call_of(file: Path) -> CallBytes:
    """Returns the bytes of a call of a problem's module."""
    target = find_reference(str(file))
    if isinstance(target, str):
        raise ValueError(target)
    live = load_target(file.parent, target)
    return most(call_bytes(live, case, live.build(case)) for case in live.cases)


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--levels", nargs="+", default=["1", "2"], metavar="LEVEL")
    parser.add_argument("--budget", type=float, default=24, metavar="GIB")
    parser.add_argument("--all", action="store_true", help="also print the problems that fit")
    options = parser.parse_args()
    budget = int(options.budget * GIB)
    files = [f for level in options.levels for f in options.kernelbench.rglob(f"level{level}/*.py")]
    counts = {"usually": 0, "with inputs in the host's memory": 0, "not": 0}
    print("GiB: input, state, output, call, usual lease, least lease, least where rows depend on each other")
    for file in sorted(files, key=lambda f: (f.parent, int(f.stem.partition("_")[0]))):
        try:
            call = call_of(file)
        except Exception as error:
            print(f"{file.parent.name}/{file.stem}: {error}")
            counts["not"] += 1
            continue
        figures = (call.usual(), call.least(Policy(), budget), call.dependent())
        fits = [figure <= budget for figure in figures]
        how = list(counts)[0 if fits[0] else 1 if fits[1] else 2]
        counts[how] += 1
        if options.all or how == "not":
            sizes = (call.inputs, call.state, call.outputs, call.peak, *figures)
            shown = " ".join(f"{size / GIB:7.2f}" for size in sizes)
            print(f"{shown}  {file.parent.name}/{file.stem}: {how}", flush=True)
    print(", ".join(f"{number} {how}" for how, number in counts.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
