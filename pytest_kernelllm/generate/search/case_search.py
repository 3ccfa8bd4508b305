"""The search in one case: which sections to measure next, and the fastest so far."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kernelllm_judge.core.measured import CaseTime
from kernelllm_judge.render.inductor.launch import LARGEST
from kernelllm_judge.render.inductor.sections import Section

Launch = Mapping[str, int]
"""The block sizes (``XBLOCK``…) and ``num_warps`` of one kernel, or of a template ``num_warps`` and ``num_stages``."""

_LARGEST = {**LARGEST, "num_warps": 32, "NUM_STAGES": 4}
_ELEMENTS = 1 << 15
"""Most elements of a block: larger ones spill registers."""


def steps(launch: Launch) -> Iterator[dict[str, int]]:
    """Yields the configurations in which one number is doubled or halved, as in Inductor's coordinate descent."""
    if launch.keys() <= {"num_warps", "num_stages"}:
        yield from _template_steps(launch)
        return
    for name, value in launch.items():
        for changed in (2 * value, value // 2):
            step = {**launch, name: changed}
            if 1 <= changed <= _LARGEST.get(name, 1024) and _elements(step) <= max(
                _ELEMENTS, _elements(launch)
            ):
                yield step


def _template_steps(launch: Launch) -> Iterator[dict[str, int]]:
    """Yields those of a template's kernel: fewer warps than four compile for long, and spill registers."""
    for name, value in launch.items():
        ways = (2 * value, value // 2) if name == "num_warps" else (value + 1, value - 1)
        low, high = (4, 16) if name == "num_warps" else (1, 5)
        yield from ({**launch, name: changed} for changed in ways if low <= changed <= high)


def neighbours(section: Section, kernel: str, others: Iterable[Section]) -> Iterator[Section]:
    """Yields sections in which one kernel is launched in another way."""
    launch = section.launches[kernel]
    for other in others:
        if other.source == section.source and kernel in other.launches:
            yield with_launch(section, kernel, other.launches[kernel])
    for step in steps(launch):
        yield with_launch(section, kernel, step)


def with_launch(section: Section, kernel: str, launch: Launch) -> Section:
    """Returns a section in which one kernel is launched in another way."""
    return replace(section, launches={**section.launches, kernel: dict(launch)})


def _elements(launch: Launch) -> int:
    count = 1
    for name, value in launch.items():
        count *= value if name.endswith("BLOCK") else 1
    return count


ENOUGH = 0.95
"""Share of the roofline from which on only the fastest program is searched. That one is, because the roofline is no bound: its
rate is that of a copy, and kernels were measured that move as many bytes in 0.87 of its time…"""
WRONG = 1.25
"""…but a share from which on it says nothing: the case must move fewer bytes than were counted."""
GAIN = 0.01
"""Smallest relative gain that counts; less is noise."""
NEAR = 1.5
"""Programs up to this many times slower than the fastest may still win once their configurations are searched."""


class CaseSearch:
    """Measures the starts first, then descends along the launch configurations of one program after the other.

    The fastest program comes first, and of its kernels one at a time, until no step makes it faster.
    """

    def __init__(self, starts: Sequence[Section]) -> None:
        """``starts``: what Inductor wrote for the case in its variants, the usual one first."""
        self.first = self.best = starts[0]
        self.times: dict[str, CaseTime] = {}
        """By ``key`` of the section, of all that were measured and did not fail."""
        self._starts = starts
        self._seen: set[str] = set()
        self._waiting = deque(self._new(starts))
        self._bases: dict[str, Section] = {}
        """The fastest section of each program, by its ``form``."""
        self._descended: list[str] = []
        """The programs whose configurations are searched, or were, by ``form``."""
        self._kernels: deque[str] = deque()
        """Of the program at hand, those that may still become faster, in order."""

    @property
    def time(self) -> CaseTime | None:
        """The time of the fastest section; None if none could be measured."""
        return self.times.get(key(self.best))

    @property
    def reached(self) -> bool:
        """Whether there is little to gain: the roofline is nearly reached."""
        return self.time is not None and ENOUGH <= self.time.roofline / self.time.microseconds < WRONG

    def propose(self, count: int) -> list[Section]:
        """Returns up to ``count`` sections to measure next; none if nothing is left."""
        while not self._waiting and self._next_kernel():
            kernel = self._kernels.popleft()
            base = self._bases[self._descended[-1]]
            self._waiting.extend(self._new(list(neighbours(base, kernel, self._starts))))
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def note(self, measured: Sequence[tuple[Section, CaseTime | None]]) -> None:
        """Takes what was measured of the proposed sections; no time if they failed."""
        for section, time in measured:
            if time is None:
                continue
            self.times[key(section)] = time
            program = form(section)
            base = self._bases.get(program)
            if base is None or self._faster(section, base):
                self._bases[program] = section
                if self._descended and program == self._descended[-1]:
                    self._waiting.clear()  # steps from where it was before
                    self._kernels = deque(section.launches)
            if self.time is None or self._faster(section, self.best):
                self.best = section

    def _faster(self, section: Section, than: Section) -> bool:
        return self._us(section) < (1 - GAIN) * self._us(than)

    def _us(self, section: Section) -> float:
        return self.times[key(section)].microseconds

    def _next_kernel(self) -> bool:
        """Goes on to the next program where the kernels of the one at hand are done; whether one is left."""
        while not self._kernels:
            if self.reached and self._descended:
                return False
            left = [base for program, base in self._bases.items() if program not in self._descended]
            near = [base for base in left if self._us(base) <= NEAR * self._us(self.best)]
            if not near:
                return False
            fastest = min(near, key=self._us)
            self._descended.append(form(fastest))
            self._kernels = deque(fastest.launches)
        return True

    def _new(self, sections: Sequence[Section]) -> list[Section]:
        """Returns those that were not proposed yet, and notes that they are now."""
        new = []
        for section in sections:
            if key(section) not in self._seen:
                self._seen.add(key(section))
                new.append(section)
        return new


def form(section: Section) -> str:
    """Names a program whatever its numbers are: its source, and what each kernel's configuration has numbers for."""
    configured = {name: sorted(each) for name, each in section.launches.items()}
    return json.dumps([configured, section.source], sort_keys=True)


def key(section: Section) -> str:
    """Names a program with its configurations."""
    return json.dumps([section.launches, section.scalars, section.source], sort_keys=True)
