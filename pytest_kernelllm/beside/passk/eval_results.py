"""Writes a benchmark in the files of KernelBench's own scripts.

::

    FOLDER/level1/eval_results.json   as scripts/eval_from_generations.py leaves them: one run for each level
    FOLDER/level2/eval_results.json
    FOLDER/baseline.json              as scripts/generate_baseline_time.py leaves it

KernelBench times in ms and gives means; these are medians with a cold L2, which ``runtime_stats`` says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelllm_judge.core.records import Environment, Spread
from pytest_kernelllm.beside.passk.levels import UNCOMPILED
from pytest_kernelllm.beside.passk.records import Benchmark, Sample, TargetScore

UNMEASURED = -1.0
"""The time that KernelBench writes for what was not timed."""


def write_eval_results(folder: Path, benchmark: Benchmark) -> None:
    """Writes the files; those of an earlier run of the same levels are replaced.

    Raises:
        OSError: they cannot be written.
    """
    for level, entries in eval_results(benchmark).items():
        _write(folder / f"level{level}" / "eval_results.json", entries)
    _write(folder / "baseline.json", baseline(benchmark))


def eval_results(benchmark: Benchmark) -> dict[int, dict[str, list[dict[str, Any]]]]:
    """Returns what becomes of each sample, by level and problem number. Problems that were left out have no entry."""
    found: dict[int, dict[str, list[dict[str, Any]]]] = {score.level: {} for score in benchmark.levels}
    for score in benchmark.targets:
        if score.problem:
            entries = [_entry(sample, benchmark.environment) for sample in score.samples]
            found[score.problem.level][str(score.problem.number)] = entries
    return found


def baseline(benchmark: Benchmark) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns the original's times by level and problem.

    KernelBench's analysis leaves a problem without an entry out of its count, so every problem has one: -1 stands
    where no correct sample was timed, and is not read there.
    """
    times: dict[str, dict[str, dict[str, Any]]] = {f"level{score.level}": {} for score in benchmark.levels}
    problems = [(score.problem, _eager(score)) for score in benchmark.targets]
    problems += [(left.problem, None) for left in benchmark.left_out]
    known = [(problem, spread) for problem, spread in problems if problem]
    for problem, spread in sorted(known, key=lambda item: item[0]):
        times[f"level{problem.level}"][problem.name] = {
            "mean": _ms(spread),
            **_stats(spread, benchmark.environment),
        }
    return times


def _eager(score: TargetScore) -> Spread | None:
    """The original's time beside the first sample that was timed: the one whose speedup KernelBench counts."""
    return next((s.eager for s in sorted(score.samples, key=lambda s: s.index) if s.eager), None)


def _entry(sample: Sample, environment: Environment) -> dict[str, Any]:
    metadata = {"hardware": environment.gpu, "device": environment.device}
    if not sample.correct:
        metadata |= _failure(sample)
    return {
        "sample_id": sample.index,
        "compiled": sample.result not in UNCOMPILED,
        "correctness": sample.correct,
        "metadata": metadata,
        "runtime": _ms(sample.kernel),
        "runtime_stats": _stats(sample.kernel, environment),
        "ref_runtime": _ms(sample.eager),
        "ref_runtime_stats": _stats(sample.eager, environment),
    }


def _failure(sample: Sample) -> Mapping[str, str]:
    """The reason under the names that KernelBench's evaluation uses."""
    name = sample.rule or sample.result
    if sample.result == "inconclusive":
        return {"inconclusive": sample.reason}
    if sample.result in UNCOMPILED:
        return {"compilation_error_name": name, "compilation_error": sample.reason}
    if sample.result in ("load", "run"):
        return {"runtime_error_name": name, "runtime_error": sample.reason}
    return {"correctness_issue_name": name, "correctness_issue": sample.reason}


def _ms(spread: Spread | None) -> float:
    return spread.p50 / 1000 if spread else UNMEASURED


def _stats(spread: Spread | None, environment: Environment) -> dict[str, Any]:
    if spread is None:
        return {}
    return {
        "median": spread.p50 / 1000,
        "p20": spread.p20 / 1000,
        "p80": spread.p80 / 1000,
        "hardware": environment.gpu,
        "device": environment.device,
    }


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4, allow_nan=False) + "\n", encoding="utf-8")
