"""The largest error that a verdict measured, beside the error that was allowed there."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.core.records import Verdict


@dataclass(frozen=True)
class MeasuredError:
    """A relative error and what was allowed."""

    measured: float
    allowed: float

    @property
    def share(self) -> float:
        """The measured error over the allowed one: more than 1 is wrong."""
        return self.measured / (self.allowed or 1)

    def __str__(self) -> str:
        """Returns ``5.6e-08 / 2e-06``."""
        return f"{self.measured:.2g} / {self.allowed:.2g}"


def worst_error(verdict: Verdict | None) -> MeasuredError | None:
    """Returns the error that is largest relative to what was allowed; None where no error was measured."""
    errors = [
        MeasuredError(check.measured, check.allowed)
        for check in (verdict.checks if verdict else ())
        if isinstance(check.measured, float) and isinstance(check.allowed, float)
        if check.name.startswith(("output", "gradient"))
    ]
    return max(errors, key=lambda error: error.share, default=None)
