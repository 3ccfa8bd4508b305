"""Searches for the fastest program of a target: measures Inductor's variants, then their launch configurations."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from kernelllm_judge.core.measured import Measured
from kernelllm_judge.core.records import Case
from kernelllm_judge.render.inductor.dispatch import Region
from kernelllm_judge.render.inductor.sections import Section
from pytest_kernelllm.generate.search.case_search import CaseSearch, key

Program = tuple[Section, ...]
"""A section for each case of the target."""

Measure = Callable[[Sequence[Program]], Sequence[Measured]]
"""Measures several programs side by side; the results are in their order."""

Report = Callable[[int, float, float], None]
"""Gets the number of programs tried, the seconds spent, and the speedup over the first program."""


@dataclass(frozen=True)
class Found:
    """How a search ended."""

    program: Program
    """The fastest one; the first one if none could be measured."""
    gain: float
    """Its speedup over the first one, the geometric mean over the cases in which both could be measured."""
    tried: int
    """How many programs were measured."""
    seconds: float
    """Seconds that the search took."""
    error: str = ""
    """Why the first program could not be measured; empty if it could."""


def search(
    starts: Sequence[Program],
    measure: Measure,
    *,
    seconds: float,
    side_by_side: int = 1,
    report: Report = lambda tried, spent, gain: None,
) -> Found:
    """Searches until the roofline is nearly reached, no step makes the target faster, or the time is over.

    Each case is searched by itself: one measurement serves all of them. Cases of one domain with equally large inputs, which
    ``forward`` cannot tell apart, have the program of the first of them.

    Args:
        starts: Inductor's variants, the usual one first.
        measure: measures programs.
        seconds: the budget, for compiling and measuring; no round is begun that would exceed it if it took as long as the longest.
        side_by_side: how many programs are measured at once.
        report: called after each round.
    """
    first: dict[str, int] = {}
    alike = [first.setdefault(_told_apart_by(section.case), n) for n, section in enumerate(starts[0])]
    cases = [CaseSearch([start[number] for start in starts]) for number in first.values()]
    names = [starts[0][number].case.name for number in first.values()]

    def whole(chosen: Sequence[Section]) -> Program:
        of = dict(zip(first.values(), chosen, strict=True))
        return tuple(replace(of[like], case=own.case) for like, own in zip(alike, starts[0], strict=True))

    tried, spent, longest, error = 0, 0.0, 0.0, ""
    while spent + longest < seconds:
        proposed = [case.propose(side_by_side) for case in cases]
        if not any(proposed):
            break
        # A case with fewer to try runs its fastest one meanwhile.
        programs = [
            whole([section or case.best for section, case in zip(row, cases, strict=True)])
            for row in zip_longest(*proposed)
        ]
        results = measure(programs)
        for name, case, new in zip(names, cases, proposed, strict=True):
            case.note([(section, result.of(name)) for section, result in zip(new, results, strict=False)])
        if not tried:
            error = results[0].error
        tried += len(programs)
        longest = max(longest, *(result.seconds for result in results))
        spent += max(result.seconds for result in results)
        report(tried, spent, _gain(cases))
    return Found(whole([case.best for case in cases]), _gain(cases), tried, spent, error)


def _told_apart_by(case: Case) -> str:
    """Returns what is the same for cases that ``forward`` cannot tell apart."""
    large = Region(case.domain.inputs, case.sizes, case.domain.dims).elements()
    return repr((case.domain, large or case.sizes))


def _gain(cases: Sequence[CaseSearch]) -> float:
    gains = [
        first.microseconds / case.time.microseconds
        for case in cases
        if (first := case.times.get(key(case.first))) is not None and case.time is not None
    ]
    return statistics.geometric_mean(gains) if gains else 1.0
