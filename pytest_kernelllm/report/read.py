"""The report's records, and how they are read from a file that anybody may have written."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from kernelllm_judge.core.records import ADOPTED, SCHEMA, Environment, Record, RecordError, Target, Verdict
from kernelllm_judge.core.shorten import whole
from kernelllm_judge.core.spans import Span
from pytest_kernelllm.core.history import History
from pytest_kernelllm.core.usage import Usage
from pytest_kernelllm.discover.original import Original


class ReportError(ValueError):
    """A file is not a report; a clause that says why."""


@dataclass(frozen=True)
class ReportedRound(Record):
    """One answer of a candidate that was repaired."""

    kernel_hash: str | None
    reason: str
    tokens: int
    cost: float | None
    cached: bool
    verdict: Verdict | None


@dataclass(frozen=True)
class ReportedCandidate(Record):
    """One candidate as ``report.json`` has it."""

    id: str
    """``inductor-3``, or ``adopted``."""
    generator: str
    note: str
    kernel_hash: str | None
    reason: str
    tokens: int
    cost: float | None
    cached: bool
    verdict: Verdict | None
    rounds: tuple[ReportedRound, ...] = ()
    """Each answer, the first one first, where the first one was repaired; the fields above are those of the best one."""
    source: str = ""
    """The kernel module that was judged; empty where there is none."""

    @property
    def answers(self) -> int:
        """How many answers were asked for."""
        return max(1, len(self.rounds))


@dataclass(frozen=True)
class ReportedTarget(Record):
    """One target as ``report.json`` has it."""

    target: Target
    candidates: tuple[ReportedCandidate, ...]
    best: str | None
    """``id`` of the candidate that the patch adopts."""
    patch: str | None
    """Path of its patch, where the run wrote one."""
    history: History | None = None
    """What earlier runs recorded about the adopted kernel, and how this run compares; None without an adopted kernel."""
    original: Original | None = None
    """The class's text; None where it was not found."""
    stale: bool = False
    """Whether the class changed since its kernel was adopted, so that the original runs."""

    @property
    def winner(self) -> ReportedCandidate | None:
        """The candidate that the patch adopts, which then has an accepting verdict."""
        return next(
            (c for c in self.candidates if c.id == self.best and c.verdict and c.verdict.accepted), None
        )

    @property
    def adopted(self) -> ReportedCandidate | None:
        """The kernel that the source adopts already."""
        return next((c for c in self.candidates if c.id == str(ADOPTED)), None)

    @property
    def failure(self) -> tuple[str, str] | None:
        """How and why the adopted kernel does not pass: ``("fails", "...")``, ``("is slower", "...")``; None if it does."""
        if self.adopted is None:
            return None
        verdict, note = self.adopted.verdict, self.history.note if self.history else ""
        if verdict is None or not verdict.correct:
            why = verdict.reason if verdict else self.adopted.reason
            return "fails", "; ".join(filter(None, [why, note]))
        return ("is slower", note) if self.history and self.history.slower else None


@dataclass(frozen=True)
class Report(Record):
    """``--kernelllm-report``."""

    environment: Environment
    targets: tuple[ReportedTarget, ...]
    usage: Usage | None = None
    """None if every verdict was known before."""
    created: str = ""
    """UTC time of the run's end, ISO 8601."""
    stopped: str = ""
    """Why the run ended before everything was tried; empty if it did not."""
    spans: tuple[Span, ...] = ()
    """What the run's processes did; ``kernelllm timeline`` draws it."""
    schema: int = SCHEMA


def read_report(content: bytes) -> Report:
    """Reads the report in a JSON text.

    Raises:
        ReportError: it is not one, or not of this version.
    """
    try:
        data: Any = json.loads(content, parse_constant=_refuse, parse_float=_finite)
        return Report.from_json(data if isinstance(data, dict) else {})
    except RecordError as error:
        raise ReportError(_short(str(error))) from None
    except (ValueError, RecursionError) as error:
        raise ReportError(f"not JSON ({_short(str(error))})") from None


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number without end")
    return value


def _short(text: str) -> str:
    plain = "".join(c if c.isprintable() else " " for c in text)
    return whole(plain, 200)
