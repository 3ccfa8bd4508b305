"""How busy a run kept its slots: what its verdicts took, over the time that it had for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from kernelllm_judge.core.spans import JUDGING, Span
from kernelllm_runtime.record import Record


@dataclass(frozen=True)
class Usage(Record):
    """How busy the slots were between the beginning of a run's first verdict and the end of its last."""

    slots: int
    """How many candidates could be judged at once."""
    seconds: float
    """From the first beginning to the last end."""
    judging: float
    """What the verdicts took, added up. They may wait for each other to have a GPU alone, which counts."""
    busy_share: float
    """Share of the time in which a slot was judging, in the mean over the slots; 0 to 1."""

    @classmethod
    def of(cls, slots: int, spans: Sequence[Span]) -> Self | None:
        """Returns the usage by the spans of verdicts, among others; None where nothing was judged."""
        verdicts = [span for span in spans if span.what == JUDGING]
        if not verdicts:
            return None
        seconds = max(span.end for span in verdicts) - min(span.begin for span in verdicts)
        judging = sum(span.seconds for span in verdicts)
        share = min(1.0, judging / (slots * seconds)) if seconds > 0 else 0.0
        return cls(slots, round(seconds, 3), round(judging, 3), round(share, 3))

    def __str__(self) -> str:
        """As a sentence: ``6 slots were judging 83 % of the 41 s from the first verdict to the last.``"""
        slots = "1 slot was" if self.slots == 1 else f"{self.slots} slots were"
        share = f"{100 * self.busy_share:.0f} %"
        return f"{slots} judging {share} of the {self.seconds:.3g} s from the first verdict to the last."
