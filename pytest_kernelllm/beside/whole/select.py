"""Chooses how a model runs: one change after the other, and each stays that surely makes the example faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kernelllm_judge.core.records import Ratio
from kernelllm_judge.target.errors import in_one_line
from pytest_kernelllm.beside.optimize.turns import in_turns, middle_half
from pytest_kernelllm.beside.optimize.whole import COMPILED, pays
from pytest_kernelllm.beside.whole.choices import Choice
from pytest_kernelllm.beside.whole.errors import ALLOWED, Reference, floating
from pytest_kernelllm.beside.whole.stage import Call, Stage, Way

LEAST = 1.0
"""How many times as fast the example must surely be."""
WARM = 3
"""Runs before anything is timed: CUDA graphs warm up in the first, and are recorded in the second."""


@dataclass(frozen=True)
class Tried:
    """What became of a choice."""

    choice: Choice
    gain: Ratio | None = None
    """How many times as fast the example is with it; None if it was not timed."""
    kept: bool = False
    reason: str = ""
    """Why it is not kept."""


@dataclass(frozen=True)
class Chosen:
    """The fastest way that was found."""

    way: Way
    call: Call
    tried: tuple[Tried, ...]


class Selection:
    """Selects greedily, from ``torch.compile``'s default on."""

    def __init__(
        self,
        stage: Stage,
        plain: Call,
        reference: Reference,
        allowed: float,
        end: float,
        report: Callable[[str], None],
    ) -> None:
        """Takes what bounds the choice.

        Args:
            plain: the model's call under ``torch.compile`` with its defaults.
            allowed: the largest error of outputs.
            end: the monotonic time after which nothing more is tried.
        """
        self._stage, self._reference, self._allowed = stage, reference, allowed
        self._end, self._report = end, report
        self._longest = 0.0
        self._way = Way()
        self._call = plain
        self._tried: list[Tried] = []

    def run(self, choices: Sequence[Choice]) -> Chosen:
        """Tries all choices in their order; Ctrl-C ends that, and what was found counts."""
        try:
            self._warmed(self._call)
            for choice in choices:
                if not any(each.kept and each.choice.name == choice.unless for each in self._tried):
                    self._try(choice)
        except KeyboardInterrupt:
            self._tried.append(Tried(Choice("the rest"), reason="the run was interrupted"))
        return Chosen(self._way, self._call, tuple(self._tried))

    def _try(self, choice: Choice) -> None:
        begun = time.monotonic()
        if begun + self._longest > self._end:
            self._tried.append(Tried(choice, reason="no time was left to try it"))
            return
        self._report(f"trying {choice.name}")
        tried, call = self._measured(choice)
        self._longest = max(self._longest, time.monotonic() - begun)
        self._tried.append(tried)
        if tried.kept:
            self._way, self._call = self._with(choice), call

    def _measured(self, choice: Choice) -> tuple[Tried, Call]:
        call = self._stage.compiled(self._with(choice))
        try:
            error = self._reference.error(floating(self._warmed(call)))
            if error is not None and not error <= self._allowed:
                why = f"its error is {error:.1e}, more than {ALLOWED:g} times that of torch.compile"
                return Tried(choice, reason=why), call
            ways = (self._call, call)
            calls = (COMPILED.untimed + COMPILED.timed) / COMPILED.timed
            gain = middle_half(*in_turns(lambda way: self._stage.seconds(ways[way]), 2, calls=calls))
        except Exception as failure:  # a compiler's error, or too little memory: the model runs as it did
            return Tried(choice, reason=f"it fails: {in_one_line(failure)}"), call
        if pays(gain, LEAST):
            return Tried(choice, gain, kept=True), call
        return Tried(choice, gain, reason="the model is not surely faster with it"), call

    def _with(self, choice: Choice) -> Way:
        more = choice.regions
        regions = tuple(dict.fromkeys((*self._way.regions, *(more or ())))) if more != () else ()
        return replace(
            self._way,
            options={**self._way.options, **choice.options},
            regions=regions,
            attention=choice.attention or self._way.attention,
        )

    def _warmed(self, call: Call) -> object:
        for _ in range(WARM - 1):
            self._stage.run(call)
        return self._stage.run(call)
