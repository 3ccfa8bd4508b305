"""KernelBench's problems at their own sizes, written by Inductor with a search, judged, and timed beside ``torch.compile``.

Problems are drawn from levels 1 and 2 with a seed. Times are the verdict's: one process, in turns, cold L2, the judge's clock.
Problems without a correct kernel, or without a verdict in time, have a row without a ratio. Needs a GPU.

    python -m benchmarks kernelbench --kernelbench CHECKOUT [--problems 24] [--seed 0] [--limit 170] [--search 10]
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.rows import Row, command

AT_ONCE = 8
"""Problems of one ``kernelllm bench``, which judges about as many at once; none begins after the limit."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--problems", type=int, default=24, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=170.0, metavar="SECONDS")
    parser.add_argument("--search", type=float, default=10.0, metavar="SECONDS", help="a problem")


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields a row for each problem that was drawn."""
    files = [
        file
        for level in (1, 2)
        for file in sorted(options.kernelbench.resolve().rglob(f"level{level}/[0-9]*.py"))
    ]
    if not files:
        raise SystemExit(f"{options.kernelbench} holds no level1; name a checkout of KernelBench.")
    drawn = random.Random(options.seed).sample(files, min(options.problems, len(files)))
    end = time.monotonic() + options.limit
    for start in range(0, len(drawn), AT_ONCE):
        part = drawn[start : start + AT_ONCE]
        names = {f"{file.parent.name}/{file.name}": file for file in part}
        report = _bench(names, end - time.monotonic(), options.search)
        for scored in (report or {"targets": []})["targets"]:
            problem = scored["problem"]
            name = f"level{problem['level']}/{problem['name']}"
            names.pop(name, None)
            yield _row(name.removesuffix(".py"), scored)
        for name in names:
            yield Row(name.removesuffix(".py"), "", None, None, "ms", note="no verdict in time")


def _bench(names: dict[str, Path], seconds: float, search: float) -> dict[str, Any] | None:
    """Returns the report of ``kernelllm bench`` over some problems; None where it does not end in time."""
    if seconds < 30:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for name, file in names.items():
            place = Path(folder, "problems", name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
        levels = ",".join(sorted({name[5] for name in names}))
        bench = [*command("kernelllm"), "bench", "--kernelbench", levels, "--kernelbench-path", "problems"]
        more = ["--generator", "inductor", "-k", "1", "--search", f"{search:g}", "--json", "report.json"]
        try:
            subprocess.run([*bench, *more], cwd=folder, timeout=seconds, check=False, capture_output=True)
        except subprocess.TimeoutExpired:
            return None
        file = Path(folder, "report.json")
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def _row(name: str, scored: dict[str, Any]) -> Row:
    timed = [s for s in scored["samples"] if s["result"] == "correct" and s["kernel"] and s["compiled"]]
    if not timed:
        why = next((s["reason"] for s in scored["samples"] if s["reason"]), "no candidate")
        return Row(name, "", None, None, "ms", note=why[:100])
    best = min(timed, key=lambda s: float(s["kernel"]["p50"]))
    ours, theirs, eager = (best[way]["p50"] / 1e3 for way in ("kernel", "compiled", "eager"))
    return Row(name, "torch.compile", theirs, ours, "ms", theirs / ours, note=f"{eager / ours:.2f} of eager")
