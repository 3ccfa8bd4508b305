"""Runs a benchmark and writes its figures down.

    python -m benchmarks NAME [options]      one of them; --help lists its options
    python -m benchmarks release [NAME …]    those that a release states, one after the other, within --limit seconds
    python -m benchmarks results             makes RESULTS.md of benchmarks/results/*.json

Names: start, throughput, kernelbench, certificates, optimize, generation, noise, harness, startup, dispatch, training, models; and
dropin, which no release runs, as it needs public answers.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import results, rows

NAMES = (
    "start",
    "kernelbench",
    "certificates",
    "optimize",
    "throughput",
    "generation",
    "startup",
    "dispatch",
    "noise",
    "harness",
    "training",
    "models",
)
"""Each is a module with ``add`` (its options) and ``run`` (its rows); in the order in which a release measures them."""

ON_REQUEST = ("dropin",)

SECONDS = {
    "start": 110,
    "kernelbench": 200,
    "certificates": 300,
    "optimize": 130,
    "throughput": 60,
    "generation": 60,
    "startup": 30,
    "dispatch": 20,
    "noise": 90,
    "harness": 300,
    "training": 280,
    "models": 7200,
}
"""What each takes about, on one H100, with the options that a release uses."""


def main(argv: Sequence[str]) -> int:
    """Runs what the first argument names; the exit code."""
    name, *arguments = argv or ["--help"]
    if name == "results":
        return results.main()
    if name == "release":
        return _release(arguments)
    if name not in (*NAMES, *ON_REQUEST):
        print(__doc__)
        return 0 if name in ("-h", "--help") else 2
    module = importlib.import_module(f"benchmarks.{name}")
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=rows.RESULTS, metavar="FOLDER", help="gets NAME.json")
    module.add(parser)
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    found = []
    for row in module.run(options):
        found.append(row)
        print(row.in_words(), flush=True)
    if not found:
        print(f"{name}: nothing was measured.", file=sys.stderr)
        return 1
    print(f"written to {rows.write(options.out, name, found, time.monotonic() - begun, arguments)}")
    return 0


def _release(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks release", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"by default {' '.join(NAMES)}")
    parser.add_argument(
        "--limit", type=float, default=580.0, metavar="SECONDS", help="begin none that takes longer"
    )
    parser.add_argument(
        "--kernelbench", type=Path, metavar="CHECKOUT", help="of KernelBench; without, three are left out"
    )
    parser.add_argument("--out", type=Path, default=rows.RESULTS, metavar="FOLDER")
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.limit
    left = []
    for name in options.names or NAMES:
        more = (
            ["--kernelbench", str(options.kernelbench)]
            if name in ("kernelbench", "certificates", "harness")
            else []
        )
        if more and options.kernelbench is None:
            print(f"{name} is left out: it needs --kernelbench CHECKOUT.", flush=True)
            continue
        room = end - time.monotonic()
        if room < SECONDS[name]:
            left.append(name)
            continue
        print(f"== {name}, {room:.0f} s left", flush=True)
        run = [sys.executable, "-m", "benchmarks", name, "--out", str(options.out), *more]
        try:
            subprocess.run(run, cwd=rows.ROOT, timeout=room, check=False)
        except subprocess.TimeoutExpired:
            print(f"{name} was ended after {room:.0f} s.", flush=True)
    if left:
        print(f"left for another run: python -m benchmarks release {' '.join(left)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
