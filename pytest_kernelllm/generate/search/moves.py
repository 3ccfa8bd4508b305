"""The moves of the search: launch configurations that are one step away from a section's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

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
