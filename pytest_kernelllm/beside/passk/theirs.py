"""Reads what KernelBench's own check said of a run's samples: the ``eval_results.json`` of its ``eval_from_generations.py``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_kernelllm.beside.passk.estimator import mean, pass_at_k
from pytest_kernelllm.beside.passk.figures import RESULTS
from pytest_kernelllm.beside.passk.problems import BenchError
from pytest_kernelllm.beside.passk.records import Sample, TargetScore

Verdicts = Mapping[tuple[int, int], bool]
"""Whether a sample is correct, by the number of its problem and its own."""


@dataclass(frozen=True)
class Theirs:
    """What KernelBench's own check said of the samples of one level, beside this judge."""

    samples: int
    pass_at: Mapping[int, float | None]
    """pass@k under it, for each k of the run."""
    refused_here: Mapping[str, int]
    """How many samples that it accepts are not right here, by the rule or the stage that says so, the most frequent first."""
    accepted_here: int
    """How many samples that it refuses are right here."""

    @property
    def wrongly(self) -> int:
        """How many samples it accepts that are not right here."""
        return sum(self.refused_here.values())


def read_verdicts(path: Path) -> Verdicts:
    """Reads an ``eval_results.json``.

    Raises:
        BenchError: it cannot be read, or has another form.
    """
    try:
        data = json.loads(path.read_bytes())
        return {
            (int(problem), int(one["sample_id"])): _flag(one["correctness"])
            for problem, entries in data.items()
            for one in (entries if isinstance(entries, list) else [entries])
        }
    except OSError as error:
        raise BenchError(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BenchError(
            f"{path} is no eval_results.json of KernelBench ({type(error).__name__}: {error}): it maps the number of "
            "each problem to entries with `sample_id` and `correctness`."
        ) from None


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"`correctness` is {value!r}")
    return value


def beside(targets: Sequence[TargetScore], verdicts: Verdicts, missing: int, at: Sequence[int]) -> Theirs:
    """Compares the two checks over the problems of one level.

    As in KernelBench's own analysis, a sample without an entry is not correct.

    Args:
        missing: problems of the level that the run left out, and that no sample is counted for.
        at: each k of pass@k.
    """
    pairs = [
        [(sample, verdicts.get((one.problem.number, sample.index), False)) for sample in one.samples]
        for one in targets
        if one.problem
    ]
    flat = [pair for each in pairs for pair in each]
    refused = Counter(_why(sample) for sample, accepted in flat if accepted and not sample.correct)

    def passes(k: int) -> float | None:
        shares = [pass_at_k(len(each), sum(accepted for _, accepted in each), k) for each in pairs]
        return mean([*shares, *[0.0] * missing])

    return Theirs(
        len(flat),
        {k: passes(k) for k in at},
        dict(refused.most_common()),
        sum(sample.correct and not accepted for sample, accepted in flat),
    )


def _why(sample: Sample) -> str:
    return f"rule {sample.rule}" if sample.rule else RESULTS[sample.result]
