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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.rows import Row, command


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
    names = {f"{file.parent.name}/{file.name}": file for file in drawn}
    for scored in _bench(names, options.limit, options.search):
        name = f"level{scored['problem']['level']}/{scored['problem']['name']}"
        names.pop(name, None)
        yield _row(name.removesuffix(".py"), scored)
    for name in names:
        yield Row(name.removesuffix(".py"), "", None, None, "ms", note="no verdict in time")


def _bench(names: dict[str, Path], seconds: float, search: float) -> list[dict[str, Any]]:
    """Returns what ``kernelllm bench`` found about some problems; it is interrupted, and writes what is finished, after a time."""
    with tempfile.TemporaryDirectory() as folder:
        for name, file in names.items():
            place = Path(folder, "problems", name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
        levels = ",".join(sorted({name[5] for name in names}))
        bench = [*command("kernelllm"), "bench", "--kernelbench", levels, "--kernelbench-path", "problems"]
        more = ["--generator", "inductor", "-k", "1", "--search", f"{search:g}", "--json", "report.json"]
        with subprocess.Popen([*bench, *more], cwd=folder, stdout=subprocess.DEVNULL) as process:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.terminate()
        file = Path(folder, "report.json")
        found: list[dict[str, Any]] = (
            json.loads(file.read_text(encoding="utf-8"))["targets"] if file.is_file() else []
        )
        return found


def _row(name: str, scored: dict[str, Any]) -> Row:
    timed = [s for s in scored["samples"] if s["result"] == "correct" and s["kernel"] and s["compiled"]]
    if not timed:
        why = next((s["reason"] for s in scored["samples"] if s["reason"]), "no candidate")
        return Row(name, "", None, None, "ms", note=why[:100])
    best = min(timed, key=lambda s: float(s["kernel"]["p50"]))
    ours, theirs, eager = (best[way]["p50"] / 1e3 for way in ("kernel", "compiled", "eager"))
    return Row(name, "torch.compile", theirs, ours, "ms", theirs / ours, note=f"{eager / ours:.2f} of eager")
