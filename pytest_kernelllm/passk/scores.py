"""Turns what became of each completion into the figures of a target, and of all targets together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.records import SCHEMA, Environment, Record, Spread, Target
from pytest_kernelllm.core.usage import Usage
from pytest_kernelllm.passk.estimator import mean, pass_at_k
from pytest_kernelllm.passk.figures import RESULTS, SPEEDS, FastAt, PassAt, Result
from pytest_kernelllm.passk.problems import Problem
from pytest_kernelllm.passk.rounds import Round, RoundScore, round_score, rounds_together


@dataclass(frozen=True)
class Sample(Record):
    """What became of one completion. Every completion has one: as a candidate, or with the reason why not."""

    index: int
    result: Result
    reason: str = ""
    """One sentence; empty where the candidate was accepted."""
    rule: str = ""
    """The rule (``judge.rules``) that was broken, if one was."""
    translated: bool = False
    """Whether a candidate came of it only because a compiler's dialect was translated."""
    speedup: float | None = None
    """Times as fast as the original, geometric mean over the cases; None where it was not timed."""
    slow: bool = False
    """Correct, and below the speedup that a suggestion needs."""
    kernel_hash: str | None = None
    """SHA-256 of the candidate; None where there is none."""
    known: bool = False
    """Whether the verdict was in the store already."""
    kernel: Spread | None = None
    """Time of a call with a cold L2, in µs, where one case was timed; None with several."""
    eager: Spread | None = None
    """The same for the original, measured in turns with the kernel."""
    seconds: float = 0.0
    """What the verdict took, in this run or an earlier one; 0 where there is none."""
    durations: dict[str, float] = field(default_factory=dict)
    """The seconds by part, see ``Verdict.durations``."""
    rounds: tuple[Round, ...] = ()
    """Each answer, the first one first, where repair rounds were asked for. The sample itself is about the best of them."""
    unanswered: int = 0
    """Requests for a repair that a server failed for a passing reason."""

    @property
    def correct(self) -> bool:
        """Right, whatever its speed."""
        return self.result == "correct"


@dataclass(frozen=True)
class Score(Record):
    """The figures of one target, or of all together: counts are sums then, and pass@k and fast_p means."""

    completions: int
    candidates: int
    """Completions that became a candidate."""
    correct: int
    slow: int
    translated: int
    inconclusive: int
    """Verdicts that could not be reached; they count as failures."""
    unanswered: int
    """Requests that a server failed for a passing reason: no completions, so not counted; asked again by the next run."""
    failures: dict[Result, int]
    """How many failed at each stage, inconclusive ones apart."""
    pass_at: tuple[PassAt, ...]
    fast: tuple[FastAt, ...]
    rounds: tuple[RoundScore, ...] = ()
    """By rounds of repair, if any were asked for; the last one has the figures above."""


@dataclass(frozen=True)
class TargetScore(Record):
    """One target with its figures and what they were counted from."""

    target: Target
    score: Score
    samples: tuple[Sample, ...]
    problem: Problem | None = None
    """Which problem of KernelBench it is, if the benchmark is KernelBench."""

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"{self.problem}" if self.problem else self.target.id


@dataclass(frozen=True)
class LeftOut(Record):
    """A target that is not counted, and why."""

    target: str
    """``Target.id``, or the file's path where it holds no target."""
    reason: str
    problem: Problem | None = None
    """As in ``TargetScore``."""
    nothing_to_offer: bool = False
    """Whether the generator has nothing for it; else the target or a process failed."""

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"{self.problem}" if self.problem else self.target


@dataclass(frozen=True)
class FastP(Record):
    """KernelBench's fast_p of a level: the share of its problems whose first sample is correct and p times as fast."""

    p: float
    value: float | None
    """None where nothing was timed."""


@dataclass(frozen=True)
class LevelScore(Record):
    """The figures of one level of KernelBench as it defines them: over all problems, from the first sample of each."""

    level: int
    problems: int
    """All of the level, whether or not they were counted for pass@k."""
    compiled: int
    correct: int
    speedup: float | None
    """Geometric mean over correct samples; None where nothing was timed, or none is correct."""
    fast: tuple[FastP, ...]


@dataclass(frozen=True)
class LevelDecisions(Record):
    """What became of the problems of one level, each by its first sample, and what that took."""

    level: int
    problems: int
    """Those that the run reached. The other counts add up to it."""
    accepted: int
    """Right, and fast enough for a suggestion where it was timed."""
    slow: int
    """Right, and not that fast."""
    rejected: int
    nothing_to_offer: int
    """The generator has nothing for them."""
    inconclusive: dict[str, int]
    """How many could not be decided, by the kind of reason."""
    failed: dict[str, int]
    """How many got no verdict for another reason: the target or a process failed."""
    seconds: float
    """Of all verdicts together."""
    durations: dict[str, float]
    """The seconds by part."""

    @property
    def decided(self) -> int:
        """How many were accepted or rejected."""
        return self.accepted + self.slow + self.rejected


@dataclass(frozen=True)
class GpuUse(Record):
    """How the GPUs were used while a benchmark ran, as NVML reports it for everybody on them."""

    busy: float
    """Share of the time in which a kernel ran, mean over the GPUs."""
    peak_memory: int
    """Most bytes in use on one of them at a time."""
    seconds: float
    """For how long they were watched."""

    def __str__(self) -> str:
        """As a sentence."""
        memory = f"{self.peak_memory / 2**30:.1f} GiB of its memory"
        return f"In {self.seconds:.0f} s the GPU was busy {self.busy:.0%} of the time, with at most {memory} in use."


@dataclass(frozen=True)
class Benchmark(Record):
    """All that one benchmark found. Its JSON follows ``docs/schema/passk.json``."""

    generator: str
    model: str
    """Name of the model; empty where the generator is none."""
    revision: str
    samples: int
    """Completions asked for per target (k)."""
    environment: Environment
    timed: bool
    """Whether speed was measured; without it there is no fast_p."""
    targets: tuple[TargetScore, ...]
    total: Score
    left_out: tuple[LeftOut, ...]
    levels: tuple[LevelScore, ...] = ()
    """KernelBench's own figures, if the benchmark is KernelBench."""
    decisions: tuple[LevelDecisions, ...] = ()
    """By level, if the benchmark is KernelBench."""
    unfinished: int = 0
    """Targets that an interrupted run did not finish; they are in no other figure."""
    gpu: GpuUse | None = None
    """None without a GPU."""
    usage: Usage | None = None
    """None where every verdict was known before."""
    repair: int = 0
    """Rounds of repair that were asked for."""
    schema: int = SCHEMA


def sample_of(outcome: Outcome, *, code: bool = True) -> Sample:
    """Says what became of a completion, from the outcome of its candidate.

    Args:
        outcome: with a verdict, or with the reason why there is none.
        code: whether the completion's text held code.
    """
    candidate, verdict, index = outcome.candidate, outcome.verdict, outcome.id.sample
    if verdict is None:
        return Sample(index, "generate", outcome.reason)
    slow = verdict.rule == "speed"
    result: Result = verdict.stage
    if verdict.verdict == "inconclusive":
        result = "inconclusive"
    elif verdict.accepted or slow:
        result = "correct"
    elif candidate is None and not code:
        result = "extract"
    only = verdict.timing[0] if len(verdict.timing) == 1 else None
    return Sample(
        index,
        result,
        verdict.reason,
        verdict.rule,
        candidate is not None and candidate.translated,
        verdict.speedup.value if verdict.speedup else None,
        slow,
        candidate.kernel_hash if candidate else None,
        outcome.cached,
        only.kernel if only else None,
        only.eager if only else None,
        verdict.seconds,
        dict(verdict.durations),
    )


def rounds_of(outcome: Outcome) -> tuple[Round, ...]:
    """Says what became of each answer of a sample, the first one first."""
    return tuple(map(_round, outcome.rounds or (outcome,)))


def _round(outcome: Outcome) -> Round:
    sample = sample_of(outcome)
    return Round(
        sample.result,
        sample.reason,
        sample.rule,
        sample.speedup,
        sample.slow,
        sample.kernel_hash,
        outcome.tokens,
        outcome.cost,
    )


def score(
    samples: Sequence[Sample], at: Sequence[int], *, timed: bool, unanswered: int = 0, repair: int = 0
) -> Score:
    """Returns the figures of one target.

    Args:
        samples: one a completion.
        at: each k to give pass@k and fast_p for.
        timed: whether correct candidates were timed.
        unanswered: requests for more that failed for a passing reason.
        repair: rounds of repair that were asked for; 0: samples have no rounds.
    """
    results = Counter(s.result for s in samples)
    # A correct kernel that was not timed might be fast: then no share of fast ones is known.
    timed = timed and all(s.speedup is not None for s in samples if s.correct)

    def estimate(k: int, succeeds: Callable[[Sample], bool]) -> float | None:
        return pass_at_k(len(samples), sum(map(succeeds, samples)), k)

    return Score(
        completions=len(samples),
        candidates=sum(s.kernel_hash is not None for s in samples),
        correct=results["correct"],
        slow=sum(s.slow for s in samples),
        translated=sum(s.translated for s in samples),
        inconclusive=results["inconclusive"],
        unanswered=unanswered,
        failures=_in_order(results),
        pass_at=tuple(
            PassAt(k, estimate(k, lambda s: s.correct), estimate(k, lambda s: s.correct and not s.translated))
            for k in at
        ),
        fast=tuple(
            FastAt(p, k, estimate(k, partial(_faster, p)) if timed else None) for p in SPEEDS for k in at
        ),
        rounds=tuple(
            round_score([s.rounds for s in samples], number, at, timed=timed)
            for number in range(repair + 1 if repair else 0)
        ),
    )


def together(scores: Sequence[Score], at: Sequence[int]) -> Score:
    """Returns the figures of several targets together: sums of counts, means over targets.

    Args:
        scores: one a target, made with the same ``at``.
        at: each k that they were made for.
    """
    failures = Counter[Result]()
    for one in scores:
        failures.update(one.failures)
    fast = [(p, k) for p in SPEEDS for k in at]
    return Score(
        completions=sum(s.completions for s in scores),
        candidates=sum(s.candidates for s in scores),
        correct=sum(s.correct for s in scores),
        slow=sum(s.slow for s in scores),
        translated=sum(s.translated for s in scores),
        inconclusive=sum(s.inconclusive for s in scores),
        unanswered=sum(s.unanswered for s in scores),
        failures=_in_order(failures),
        pass_at=tuple(
            PassAt(
                k,
                mean([s.pass_at[i].value for s in scores]),
                mean([s.pass_at[i].untranslated for s in scores]),
            )
            for i, k in enumerate(at)
        ),
        fast=tuple(FastAt(p, k, mean([s.fast[i].value for s in scores])) for i, (p, k) in enumerate(fast)),
        rounds=rounds_together([s.rounds for s in scores]),
    )


def _faster(p: float, sample: Sample) -> bool:
    return sample.correct and sample.speedup is not None and sample.speedup > p


def _in_order(results: Counter[Result]) -> dict[Result, int]:
    """Counts of failures, in the order of the stages, those without any left out."""
    failed = [name for name in RESULTS if name not in ("correct", "inconclusive")]
    return {name: results[name] for name in failed if results[name]}
