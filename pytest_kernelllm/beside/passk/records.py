"""What a benchmark finds: records of a sample, a target, a level of KernelBench, and of all together."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.core.records import SCHEMA, Environment, Record, Spread, Target
from pytest_kernelllm.beside.passk.figures import FastAt, PassAt, Result
from pytest_kernelllm.beside.passk.problems import Problem
from pytest_kernelllm.core.usage import Usage


@dataclass(frozen=True)
class Answer(Record):
    """What became of one text that a generator wrote: a candidate, or the reason why there is none."""

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
    compiled: Spread | None = None
    """The same for ``torch.compile`` of the original; None where it does not compile."""
    roofline_share: float | None = None
    """Time that the call's bytes and operations need at this GPU's measured rates, over the kernel's median; 0 to 1."""
    seconds: float = 0.0
    """What the verdict took, in this run or an earlier one; 0 where there is none."""
    tokens: int = 0
    """Tokens that the model wrote; 0 if unknown."""
    cost: float | None = None
    """US dollars; None if unknown."""

    @property
    def correct(self) -> bool:
        """Right, whatever its speed."""
        return self.result == "correct"


@dataclass(frozen=True)
class Sample(Answer):
    """What became of one completion and its repairs: the best answer. Every completion has one."""

    rounds: tuple[Answer, ...] = ()
    """Each answer, the first one first, where repair rounds were asked for."""
    unanswered: int = 0
    """Requests for a repair that a server failed for a passing reason."""


@dataclass(frozen=True)
class RoundScore(Record):
    """The figures after some rounds of repair: a sample counts as right if one of its answers so far is."""

    rounds: int
    """0: first answers only."""
    answers: int
    """Answers that were asked for so far."""
    tokens: int
    cost: float | None
    """US dollars, of the answers whose cost is known."""
    correct: int
    pass_at: tuple[PassAt, ...]
    fast: tuple[FastAt, ...]


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
        """The name that tables show."""
        return f"{self.problem}" if self.problem else self.target.id


@dataclass(frozen=True)
class LeftOut(Record):
    """A target that is not counted, and why."""

    target: str
    """``Target.id``, or the file's path where it holds no target."""
    reason: str
    problem: Problem | None = None
    """As in ``TargetScore``."""

    @property
    def label(self) -> str:
        """The name that tables show."""
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
    """Over eager, geometric mean over correct samples; None where nothing was timed, or none is correct."""
    fast: tuple[FastP, ...]
    speedup_compiled: float | None = None
    """Over ``torch.compile``, in the same way, of those that it compiles."""


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
    unfinished: int = 0
    """Targets that an interrupted run did not finish; they are in no other figure."""
    usage: Usage | None = None
    """None where every verdict was known before."""
    repair: int = 0
    """Rounds of repair that were asked for."""
    schema: int = SCHEMA
