"""What a completion can end in, and the figures that are counted from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernelllm_judge.core.records import Record

SPEEDS = (0.8, 1.0, 1.2, 1.5, 2.0)
"""The p of fast_p."""

Result = Literal[
    "correct",
    "generate",
    "extract",
    "render",
    "static check",
    "compile",
    "load",
    "run",
    "correctness",
    "timing",
    "inconclusive",
]
"""``correct``, ``inconclusive``, or the stage at which a completion failed."""

RESULTS: dict[Result, str] = {
    "correct": "correct",
    "generate": "no text",
    "extract": "no code",
    "render": "not rendered",
    "static check": "refused by the static check",
    "compile": "not compiled",
    "load": "not loaded",
    "run": "failed to run",
    "correctness": "wrong",
    "timing": "not believed when timed",
    "inconclusive": "inconclusive",
}
"""In words for people, in the order of the stages."""


@dataclass(frozen=True)
class PassAt(Record):
    """pass@k; None where fewer than k completions were drawn."""

    k: int
    value: float | None
    untranslated: float | None
    """The same with completions that needed translation counted as failures."""


@dataclass(frozen=True)
class FastAt(Record):
    """fast_p of the best of k: the chance that one of k samples is correct and more than p times as fast."""

    p: float
    k: int
    value: float | None
    """None where nothing was timed, or fewer than k completions were drawn."""
