"""What a benchmark finds: records of a sample, a target, a level of KernelBench, and of all together."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelllm_judge.core.records import SCHEMA, Environment, Record, Spread, Target
from pytest_kernelllm.beside.passk.figures import FastAt, PassAt, Result
from pytest_kernelllm.beside.passk.problems import Problem
from pytest_kernelllm.beside.passk.rounds import Round, RoundScore
from pytest_kernelllm.core.usage import Usage


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
    compiled: Spread | None = None
    """The same for ``torch.compile`` of the original; None where it does not compile."""
    roofline_share: float | None = None
    """Time that the call's bytes and operations need at this GPU's measured rates, over the kernel's median; 0 to 1."""
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
    nothing_to_offer: bool = False
    """Whether the generator has nothing for it; else the target or a process failed."""

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
class LevelDecisions(Record):
    """What became of the problems of one level, each by its first sample, and what that took."""

    level: int
    problems: int
    """Those that the run reached. The other counts add up to it."""
    accepted: int
    """Right, and fast enough for a suggestion where it was timed."""
    slow: int
    """Samples that are right, and less than p times as fast."""
    rejected: int
    nothing_to_offer: int
    """Problems for which the generator has no candidate."""
    inconclusive: dict[str, int]
    """How many could not be decided, by the kind of reason."""
    failed: dict[str, int]
    """How many got no verdict for another reason: the target or a process failed."""
    seconds: float
    """Seconds of all verdicts together."""
    durations: dict[str, float]
    """The seconds by part."""

    @property
    def decided(self) -> int:
        """Number of verdicts that accept or reject."""
        return self.accepted + self.slow + self.rejected


@dataclass(frozen=True)
class GpuUse(Record):
    """How the GPUs were used while a benchmark ran, as NVML reports it for everybody on them."""

    busy: float
    """Share of the time in which a kernel ran, mean over the GPUs."""
    peak_memory: int
    """Most bytes in use on one of them at a time."""
    seconds: float
    """Seconds for which the GPUs were watched."""

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
