"""What optimizing a model found: a record of its regions, of what was tried, and of the whole model beside others."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.core.records import SCHEMA, Environment, Ratio, Record


@dataclass(frozen=True)
class RegionAnswer(Record):
    """A region, and whether a kernel runs it."""

    name: str
    """The class in the file of regions."""
    places: tuple[str, ...]
    """Modules of the model that it is part of, with ``*`` for numbers."""
    times: int
    """How often it occurs in one call."""
    compiled_us: float | None = None
    """µs of one place, compiled by ``torch.compile`` alone; None where nothing was timed."""
    kernel_us: float | None = None
    """µs of the kernel there."""
    roofline: float | None = None
    """Share of the kernel's time that its bytes and operations need at the GPU's measured rates."""
    kernel: str = ""
    """SHA-256 of the verified kernel; empty without one."""
    kept: bool = False
    """Whether the model runs it."""
    reason: str = ""
    """Why it does not; one sentence."""


@dataclass(frozen=True)
class ChoiceAnswer(Record):
    """Something that was tried on the whole model."""

    name: str
    gain: Ratio | None = None
    """How many times as fast the example is with it than with what was kept before; None if it was not timed."""
    kept: bool = False
    reason: str = ""
    """Why it is not kept."""


@dataclass(frozen=True)
class WayAnswer(Record):
    """The whole example in one way to run it."""

    name: str
    ms: float | None = None
    """Median of the rounds; None where nothing was timed."""
    ratio: Ratio | None = None
    """How many times as fast the chosen way is, with a 95 % interval."""
    error: float | None = None
    """Largest relative error of an output in the Frobenius norm."""
    reason: str = ""
    """Why it was not measured."""


@dataclass(frozen=True)
class Answer(Record):
    """What ``kernelllm optimize`` found for a model. Its JSON follows ``docs/schema/optimize.json``."""

    model: str
    """Its class."""
    environment: Environment
    regions: tuple[RegionAnswer, ...]
    choices: tuple[ChoiceAnswer, ...]
    ways: tuple[WayAnswer, ...]
    """Eager, ``torch.compile``, perhaps ``max-autotune``, and the chosen way last, timed in one run."""
    options: dict[str, bool | int | str]
    """TorchInductor's options of the chosen way."""
    attention: str = ""
    """The library that computes attention there where it can; empty: as torch chooses."""
    compiled: bool = True
    """Whether the chosen way is compiled; else it is the model as it is."""
    float64: bool = True
    """Whether errors are those relative to a copy in float64; else to the model as it is."""
    limit_ms: float | None = None
    """Matrix products, convolutions and attention at the library's speed, and all else at the bandwidth; None without a GPU."""
    limit_share: float | None = None
    """``limit_ms`` over the chosen way's time."""
    seconds: float = 0.0
    """From nothing to the answer."""
    notes: tuple[str, ...] = ()
    """Sentences about what limits these figures."""
    schema: int = SCHEMA

    @property
    def chosen(self) -> WayAnswer:
        """The chosen way."""
        return self.ways[-1]

    def way(self, name: str) -> WayAnswer | None:
        """Returns the way of a name."""
        return next((each for each in self.ways if each.name == name), None)

    @property
    def sentence(self) -> str:
        """``9.90 → 8.61 ms, 1.15 of torch.compile [1.14, 1.16], outputs within 3.1e-03 of float64's``, or what is known of it."""
        within = self.chosen.error
        against = "float64's" if self.float64 else "those of the model as it is"
        error = "" if within is None else f"outputs within {within:.1e} of {against}"
        compiled = self.way(COMPILE)
        if compiled is None or compiled.ratio is None or compiled.ms is None or self.chosen.ms is None:
            kept = sum(each.kept for each in self.regions)
            return ", ".join(
                filter(None, (f"nothing is timed without a GPU; kernels run {kept} regions", error))
            )
        ratio = compiled.ratio
        times = f"{ratio.value:.2f} of torch.compile [{ratio.low:.2f}, {ratio.high:.2f}]"
        return ", ".join(filter(None, (f"{compiled.ms:.2f} → {self.chosen.ms:.2f} ms", times, error)))


EAGER, COMPILE, MAX_AUTOTUNE, CHOSEN = "eager", "torch.compile", "max-autotune-no-cudagraphs", "chosen"
"""Names of ways."""
