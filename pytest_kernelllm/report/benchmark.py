"""Times in the JSON of pytest-benchmark, whose ``compare`` reads them beside its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelllm_judge.core.records import Ratio, Sample, Spread, Timing
from pytest_kernelllm.core.git import git_says
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.report.read import Report, ReportedCandidate, ReportedTarget

FORMAT = "5.3.1"
"""Version of pytest-benchmark whose form this is."""

HOW = (
    "Calls timed one by one with CUDA events, each behind overwrites of the L2 cache; a round is a call. "
    "total is mean * rounds, ops is 1 / mean."
)


def write_benchmarks(path: Path, report: Report, root: Path | None = None) -> int:
    """Writes what was timed to ``path``, making its folder.

    Args:
        root: project root, whose commit was timed; None where that is not known.

    Returns:
        How many times are left out, because an earlier version measured them and kept percentiles alone.
    """
    timed = [each for entry in report.targets for each in _timed(entry)]
    known = [each for each in timed if each[2].samples]
    content = {
        "machine_info": report.environment.to_json() | {"python_version": report.environment.python},
        "commit_info": _commit(root),
        "benchmarks": [entry for each in known for entry in _entries(*each)],
        "datetime": report.created,
        "version": FORMAT,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return len(timed) - len(known)


def left_out(number: int) -> str:
    """Says how many times ``write_benchmarks`` left out; empty for none."""
    if not number:
        return ""
    why = (
        "an earlier version measured them and kept percentiles alone; an empty store has them measured again"
    )
    return f"The JSON for pytest-benchmark leaves out the times of {counted(number, 'case')}: {why}."


def _timed(entry: ReportedTarget) -> Iterator[tuple[str, ReportedCandidate, Timing]]:
    """The times of the kernel that the source adopts and of the one to adopt, under names that later runs have, too."""
    for role, each in (("adopted", entry.adopted), ("suggested", entry.winner)):
        if each and each.verdict and each.verdict.correct:
            for timing in each.verdict.timing:
                yield f"{entry.target.id}::{role}", each, timing


def _entries(kernel: str, candidate: ReportedCandidate, timing: Timing) -> Iterator[dict[str, Any]]:
    spreads: Mapping[str, Spread | None] = {
        "kernel": timing.kernel,
        "eager": timing.eager,
        "compiled": timing.compiled,
    }
    faster = {"eager": timing.speedup, "compiled": timing.speedup_compiled}
    for implementation, sample in timing.samples.items():
        spread, param = spreads[implementation], f"{timing.name}-{implementation}"
        if spread is None:
            continue
        speedups = {f"speedup over {name}": _interval(ratio) for name, ratio in faster.items() if ratio}
        yield {
            "group": f"{kernel}[{timing.name}]",
            "name": f"{kernel.partition('::')[2]}[{param}]",
            "fullname": f"{kernel}[{param}]",
            "params": {"case": timing.name, "implementation": implementation},
            "param": param,
            "extra_info": {
                "candidate": candidate.id,
                "program": candidate.kernel_hash,
                "how": HOW,
                "p20": _seconds(spread.p20),
                "p80": _seconds(spread.p80),
                **(speedups if implementation == "kernel" else {}),
            },
            "options": {"disable_gc": False, "timer": "CUDA events", "warmup": True},
            "stats": _stats(sample, spread.p50),
        }


def _stats(sample: Sample, median: float) -> dict[str, Any]:
    low, high = sample.quartiles
    by_deviation, by_quartiles = sample.outliers
    times = {
        "min": sample.least,
        "max": sample.most,
        "mean": sample.mean,
        "stddev": sample.deviation,
        "median": median,
        "iqr": high - low,
        "q1": low,
        "q3": high,
        "total": sample.mean * sample.calls,
    }
    return {name: _seconds(value) for name, value in times.items()} | {
        "rounds": sample.calls,
        "iterations": 1,
        "ops": 1e6 / sample.mean,
        "stddev_outliers": by_deviation,
        "iqr_outliers": by_quartiles,
        "outliers": f"{by_deviation};{by_quartiles}",
    }


def _seconds(microseconds: float) -> float:
    return round(microseconds * 1e-6, 12)


def _interval(ratio: Ratio) -> list[float]:
    return [ratio.value, ratio.low, ratio.high]


def _commit(root: Path | None) -> dict[str, Any]:
    found = git_says(root, "rev-parse", "HEAD").strip() if root else ""
    if root is None or not found:
        return {"id": "unknown", "dirty": False, "project": root.name if root else "unknown"}
    dirty = bool(git_says(root, "status", "--porcelain", "--untracked-files=no").strip())
    branch = git_says(root, "rev-parse", "--abbrev-ref", "HEAD").strip()
    return {"id": found, "dirty": dirty, "project": root.name, "branch": branch}
