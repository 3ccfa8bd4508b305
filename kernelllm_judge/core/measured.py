"""The records of a search: how long one call of a candidate takes."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_runtime.record import Record


@dataclass(frozen=True)
class CaseTime(Record):
    """How long one call of a candidate takes in one case, at the case's own sizes; with ``backward=True`` both of its passes."""

    case: str
    microseconds: float
    """Median of calls that find L2 cold."""
    roofline: float
    """µs that its bytes and FLOPs need at the measured rates of the GPU."""


@dataclass(frozen=True)
class Measured(Record):
    """What measuring one candidate gave."""

    cases: tuple[CaseTime, ...] = ()
    """Times in the order of the target's cases; empty if measuring failed."""
    error: str = ""
    """Why it failed; empty if it did not."""
    seconds: float = 0.0
    """Seconds for compiling and timing, without waiting."""

    def of(self, case: str) -> CaseTime | None:
        """Returns the time of a case; None if there is none."""
        return next((each for each in self.cases if each.case == case), None)
