"""What every benchmark shares: the form of its figures, how they are written down, and statistics over rounds."""

from __future__ import annotations

import json
import math
import os
import platform
import random
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from kernelllm_judge.environment import find_gpus

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"

QUANTILE = {5: 2.776, 10: 2.262, 20: 2.093, 30: 2.045}
"""Two-sided 95 % quantile of Student's t, by number of rounds."""

INSTALLED = ("torch", "triton", "transformers", "liger-kernel")


@dataclass(frozen=True)
class Row:
    """One figure beside that of a peer, both of the same run. Above 1, the ratio is in our favour."""

    what: str
    peer: str
    """What we are compared with; empty for a figure without a peer."""
    theirs: float | None
    ours: float | None
    unit: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    """Both ends of the ratio's 95 % interval, where there is one."""
    note: str = ""

    def in_words(self) -> str:
        """Returns ``Qwen3: 12.3 ms, torch.compile 13.1 ms, 1.07 [1.05, 1.08]``."""
        parts = [f"{self.ours:,.4g} {self.unit}"] if self.ours is not None else []
        if self.theirs is not None:
            parts.append(f"{self.peer} {self.theirs:,.4g} {self.unit}")
        parts += [text for text in (ratio_in_words(self), self.note) if text]
        return f"{self.what}: {', '.join(parts) or 'nothing'}"


def ratio_in_words(row: Row) -> str:
    """Returns ``1.07 [1.05, 1.08]``; empty without a ratio."""
    if row.ratio is None:
        return ""
    return f"{row.ratio:.2f}" + (f" [{row.low:.2f}, {row.high:.2f}]" if row.low and row.high else "")


def less(what: str, peer: str, theirs: float, ours: float, unit: str, note: str = "") -> Row:
    """Returns the row of two figures of which the smaller is the better, such as times."""
    return Row(what, peer, theirs, ours, unit, theirs / ours, note=note)


def more(what: str, peer: str, theirs: float, ours: float, unit: str, note: str = "") -> Row:
    """Returns the row of two figures of which the larger is the better, such as rates."""
    return Row(what, peer, theirs, ours, unit, ours / theirs, note=note)


def over_rounds(what: str, peer: str, theirs: list[float], ours: list[float], unit: str) -> Row:
    """Returns the row of times that were taken in rounds: their medians, and the rounds' geometric mean with its interval."""
    logs = [math.log(b / o) for b, o in zip(theirs, ours, strict=True)]
    middle, half = statistics.mean(logs), 0.0
    if len(logs) in QUANTILE:
        half = QUANTILE[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    row = less(what, peer, statistics.median(theirs), statistics.median(ours), unit)
    return replace(row, ratio=math.exp(middle), low=math.exp(middle - half), high=math.exp(middle + half))


def geometric_mean(values: Sequence[float]) -> float:
    """Returns it; there must be one value at least."""
    return math.exp(statistics.mean(map(math.log, values)))


def interleaved(ways: Iterable[str], rounds: int) -> Iterator[str]:
    """Yields every way once a round, in an order that differs from round to round."""
    order, shuffle = list(ways), random.Random(0)
    for _ in range(rounds):
        shuffle.shuffle(order)
        yield from order


def command(name: str) -> list[str]:
    """Returns how a subprocess starts ``kernelllm`` or ``pytest``."""
    return [sys.executable, "-m", {"kernelllm": "pytest_kernelllm.cli"}.get(name, name)]


def write(folder: Path, name: str, rows: Sequence[Row], seconds: float, arguments: Sequence[str]) -> Path:
    """Writes a run's JSON: the rows, and what a reader needs to get them again."""
    gpus = find_gpus()
    content: dict[str, Any] = {
        "benchmark": name,
        "command": shlex.join(["python", "-m", "benchmarks", name, *arguments]),
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "gpu": f"{len(gpus)} × {gpus[0].name}" if gpus else "",
        "driver": gpus[0].driver if gpus else "",
        "cores": len(os.sched_getaffinity(0)),
        "versions": {"python": platform.python_version(), **_versions()},
        "seconds": round(seconds, 1),
        "rows": [asdict(row) for row in rows],
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return file


def _versions() -> dict[str, str]:
    found = {}
    for name in INSTALLED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    """The commit of this tree; ``BENCHMARKS_COMMIT`` names it where the tree was copied without its history."""
    if named := os.environ.get("BENCHMARKS_COMMIT"):
        return named
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
