"""The data that passes between the folders: frozen dataclasses that travel as JSON.

Standard library only. Every record has ``to_json`` and ``from_json``; ``SCHEMA`` names the version
of their published form (``docs/schema/``), and ``from_json`` refuses any other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from kernelllm_judge.core.program import program_name
from kernelllm_judge.core.targets import (
    Case as Case,
    Domain as Domain,
    Scalar as Scalar,
    Target as Target,
    TensorSpec as TensorSpec,
    is_pin as is_pin,
)
from kernelllm_runtime.record import (
    SCHEMA as SCHEMA,
    Record as Record,
    RecordError as RecordError,
    SchemaError as SchemaError,
)

Status = Literal["accepted", "rejected", "inconclusive"]
BaselineChoice = Literal["eager", "compile", "best"]
"""What a speedup is measured against: eager, ``torch.compile``, or whichever of them is faster on a case."""
Stage = Literal["generate", "render", "static check", "compile", "load", "run", "correctness", "timing"]


@dataclass(frozen=True)
class Completion(Record):
    """Raw text that a generator returned."""

    generator: str
    index: int
    """Which sample of this generator for its target; 0 is the first."""
    text: str
    format: Literal["modelnew", "kernel_module", "inductor"]
    """What the text claims to be: KernelLLM's ``ModelNew``, a kernel module, or TorchInductor's output code."""
    model: str = ""
    revision: str = ""
    prompt: str = ""
    seconds: float = 0.0
    tokens: int = 0
    note: str = ""
    """One line for people: the variant ("looped reduction"), or why there is no text."""
    cost: float | None = None
    """US dollars it cost when it was written; None where the price is unknown."""
    failed: bool = False
    """Whether it is missing or cut off for a passing reason (a server that was down): never stored, so asked for again."""
    reasoning: str = ""
    """What the model thought before it answered, where that is kept apart from the text."""


@dataclass(frozen=True)
class CandidateId(Record):
    """Names one candidate of a target: the same in every run, however many others are asked for."""

    generator: str
    """Name of the generator, which is unique in a run; ``adopted`` for the kernel that the source names."""
    sample: int = 0
    """``Completion.index``"""

    def __str__(self) -> str:
        """``inductor-3``, or ``adopted``."""
        return self.generator if self == ADOPTED else f"{self.generator}-{self.sample}"


ADOPTED = CandidateId("adopted")
"""Names the kernel that a target's source adopts. No generator may be called so."""


@dataclass(frozen=True)
class Candidate(Record):
    """One proposed replacement: the kernel module whose program would be adopted."""

    target: str
    """``Target.id``"""
    source: str
    generator: str
    """Who wrote it."""
    note: str = ""
    translated: bool = False
    """Whether a compiler's dialect had to be translated to plain Triton."""
    others: tuple[str, ...] = ()
    """Sources of further kernel modules of the same completion, which are tried where this one is wrong: weights
    that the completion names otherwise than the target may be carried in several ways, and a kernel may be for one shape."""

    @property
    def next(self) -> Candidate | None:
        """The candidate to try after this one."""
        return replace(self, source=self.others[0], others=self.others[1:]) if self.others else None

    @cached_property
    def kernel_hash(self) -> str:
        """Names the kernel module's program, whatever its layout: 64 hex digits."""
        return program_name(self.source)


LACKS = "lacks"
"""Name of the check that says what an inconclusive verdict waits for, such as ``a GPU``."""
MAPPED = "names mapped"
"""Name of the check whose detail is ``Verdict.mapped``."""

EXAMPLE = "example"
"""Name of the check whose detail is ``Verdict.example``."""

SIZES_ASKED = "sizes asked"
"""Name of the check whose detail says how far a verdict without a GPU reaches."""


@dataclass(frozen=True)
class Check(Record):
    """One thing that was checked, with the number behind it."""

    name: str
    passed: bool
    measured: float | str | None = None
    allowed: float | str | None = None
    detail: str = ""


@dataclass(frozen=True)
class Spread(Record):
    """20th, 50th and 80th percentile of repeated timings, in µs."""

    p20: float
    p50: float
    p80: float


@dataclass(frozen=True)
class Sample(Record):
    """What is kept of all calls behind a ``Spread``, in µs."""

    calls: int
    least: float
    most: float
    mean: float
    deviation: float
    """Their standard deviation."""
    quartiles: tuple[float, float]
    """The first and the third."""
    outliers: tuple[int, int]
    """Calls beyond one standard deviation from the mean; calls beyond 1.5 interquartile ranges from the quartiles."""


@dataclass(frozen=True)
class Ratio(Record):
    """A speedup (times as fast) with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Timing(Record):
    """How fast the kernel is on one case. Times in µs, sizes in bytes; ``warm`` leaves L2 as it was.

    A case of a target with ``backward=True`` has two: of its forward pass, and of both passes in one.
    """

    case: str
    kernel: Spread
    eager: Spread
    kernel_warm: Spread
    eager_warm: Spread
    speedup: Ratio
    """Against eager, cold L2."""
    compiled: Spread | None = None
    compiled_warm: Spread | None = None
    speedup_compiled: Ratio | None = None
    """Against ``torch.compile``, cold L2."""
    judge_clock: float = 0.0
    """The judge's own measurement of one cold call, in µs."""
    event_clock: float = 0.0
    """The worker's CUDA events for the same calls, in µs."""
    bytes: int = 0
    """Bytes that must move: inputs, parameters and outputs once."""
    flops: int = 0
    roofline: float = 0.0
    """µs that ``bytes`` and ``flops`` need at the measured rates of this GPU."""
    roofline_share: float = 0.0
    """``roofline`` over the kernel's cold median, 0 to 1."""
    kernel_peak: int = 0
    """Bytes that a call of the kernel allocates at most, outputs included."""
    eager_peak: int = 0
    """The same for the original."""
    note: str = ""
    """At which sizes it was timed and why, where they are not the case's own: memory was short, or the kernel supports no others."""
    passes: Literal["forward", "forward and backward"] = "forward"
    """What one call does. With its backward pass it computes the gradients of all inputs and parameters."""
    samples: Mapping[str, Sample] = field(default_factory=dict, hash=False)
    """Of the calls with cold L2, by ``kernel``, ``eager`` and ``compiled``; empty where an earlier version measured."""

    @property
    def name(self) -> str:
        """The case, and what is timed where that is not the forward pass alone."""
        return self.case if self.passes == "forward" else f"{self.case}, {self.passes}"


@dataclass(frozen=True)
class Environment(Record):
    """Where a verdict holds. ``device`` is ``cpu`` (Triton interpreter) or ``cuda``."""

    device: Literal["cpu", "cuda"]
    gpu: str = ""
    driver: str = ""
    arch: str = ""
    """GPU architecture that the kernels were compiled for, e.g. ``sm_90``."""
    torch: str = ""
    triton: str = ""
    python: str = ""
    policy: str = field(default="", compare=False)
    """Number of the judge's rules as a whole, for people. What a verdict rests on are its ``versions``."""

    @property
    def on_gpu(self) -> bool:
        """Whether candidates ran on a GPU, not in Triton's interpreter."""
        return self.device != "cpu"

    @property
    def key(self) -> str:
        """Short hash that names this environment in the store."""
        text = "\0".join(f"{k}={v}" for k, v in sorted(self.to_json().items()) if k != "policy")
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Terms(Record):
    """What a run asks of a target's candidates beyond the judge's rules. A verdict answers for its own terms only."""

    tolerance: float | None = None
    """Largest allowed relative error that a conftest states; None: the marker's, or the derived one."""
    inputs: str = ""
    """Fingerprint of the inputs that a conftest gives; empty: the marker's."""
    min_speedup: float = 1.05
    """Smallest speedup that is accepted, where speed is measured."""
    baseline: BaselineChoice = "eager"
    """What the speedup is measured against."""


Reach = Literal["proven for the domain", "proven at these sizes", "sampled"]
"""How far something is shown: at all sizes that the kernel supports, at those that are judged and at the ends of the ranges, or
only where probes went."""

REACHES: tuple[Reach, ...] = ("sampled", "proven at these sizes", "proven for the domain")
"""From the least to the most."""


@dataclass(frozen=True)
class Certificate(Record):
    """What is shown of the addresses of a kernel's loads, stores and atomics."""

    bounds: Reach
    """Every access lies inside its tensor."""
    races: Reach
    """No two programs write the same element, or one reads what another writes, without atomics."""
    outputs: Reach
    """Every element of every output is written."""
    launches: int = 0
    """How many launches were looked at."""
    seconds: float = 0.0
    why: str = ""
    """What kept it from being proven for the domain, first of several reasons."""

    def in_words(self) -> str:
        """Returns ``bounds and races proven for the domain, outputs sampled``."""
        parts: dict[str, list[str]] = {}
        for name in ("bounds", "races", "outputs"):
            parts.setdefault(getattr(self, name), []).append(name)
        return ", ".join(f"{' and '.join(names)} {reach}" for reach, names in parts.items())


@dataclass(frozen=True)
class Verdict(Record):
    """What the judge decided about one candidate, with every number behind it."""

    verdict: Status
    stage: Stage
    reason: str
    """One sentence for people; empty only when accepted."""
    kernel_hash: str
    environment: Environment
    rule: str = ""
    """The rule (``judge.rules``) that a rejected candidate broke; empty for other verdicts."""
    checks: tuple[Check, ...] = ()
    timing: tuple[Timing, ...] = ()
    cases: tuple[str, ...] = ()
    """Names of the cases that counted."""
    seconds: float = 0.0
    isolation: str = ""
    durations: Mapping[str, float] = field(default_factory=dict)
    """The seconds by part, the longest first; together less than ``seconds``, which has waiting for others too."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Versions of the rules in force, and of the judge's parts, see ``standing``; empty before rules had versions."""
    fence: str = ""
    """The kernel module with the original in place of what no probe ran, where that is why it is rejected."""
    addresses: Certificate | None = None
    """What is shown of the addresses of an accepted kernel; None where nothing was looked at."""
    schema: int = SCHEMA

    def unfenced(self) -> Verdict:
        """Returns the verdict on a candidate that is not right either where the original runs in place of what no probe ran."""
        return replace(self, verdict="inconclusive", rule="", fence="") if self.fence else self

    @property
    def accepted(self) -> bool:
        """Whether it is right and, where it was timed, fast enough."""
        return self.verdict == "accepted"

    @property
    def correct(self) -> bool:
        """Whether it is right at any speed: accepted, or rejected only for its speed."""
        return self.accepted or self.rule == "speed"

    @property
    def sizes_asked(self) -> str:
        """How far it reaches, in one sentence, where it reaches less far than the target declares; else empty."""
        return self._detail(SIZES_ASKED)

    @property
    def lacks(self) -> str:
        """What would decide an inconclusive verdict and is missing in its environment; empty where trying again might."""
        return self._detail(LACKS)

    @property
    def mapped(self) -> str:
        """Which names of the answer stand for others of the module; empty where they are the same."""
        return self._detail(MAPPED)

    @property
    def example(self) -> str:
        """What is wrong at the smallest inputs that were found, and on further lines these; empty where that was not asked for."""
        return self._detail(EXAMPLE)

    def _detail(self, name: str) -> str:
        return next((check.detail for check in self.checks if check.name == name), "")

    @property
    def speedup(self) -> Ratio | None:
        """Against eager: the geometric mean over all timings, with those of both passes; None where nothing was timed."""
        return mean_ratio([t.speedup for t in self.timing])

    @property
    def speedup_compiled(self) -> Ratio | None:
        """The same against ``torch.compile``; None if it was not timed on every case."""
        ratios = [t.speedup_compiled for t in self.timing if t.speedup_compiled is not None]
        return mean_ratio(ratios) if len(ratios) == len(self.timing) else None

    def in_words(self) -> str:
        """Returns ``accepted, 1.83x eager [1.80, 1.86], 1.20x torch.compile [1.10, 1.30]``, or why not."""
        named = (("eager", self.speedup), ("torch.compile", self.speedup_compiled))
        speeds = "".join(f", {r.value:.2f}x {name} [{r.low:.2f}, {r.high:.2f}]" for name, r in named if r)
        mapped = f"; {self.mapped}" if self.mapped else ""
        return f"{self.verdict}{speeds}" + (f": {self.reason}" if self.reason else "") + mapped


def mean_ratio(ratios: Sequence[Ratio]) -> Ratio | None:
    """Returns the geometric mean of speedups and of their bounds; None of nothing."""
    if not ratios:
        return None
    share = 1 / len(ratios)
    return Ratio(*(math.prod(getattr(r, part) ** share for r in ratios) for part in ("value", "low", "high")))


@dataclass(frozen=True)
class KernelRecord(Record):
    """What the store keeps of a judged candidate."""

    target: str
    source_hash: str
    candidate: Candidate
    verdict: Verdict
    created: str
    """UTC time, ISO 8601."""
    terms: Terms = field(default_factory=Terms)
    """What was asked of it."""
    schema: int = SCHEMA
