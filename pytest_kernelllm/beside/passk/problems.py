"""Finds KernelBench's problems in a checkout, by level and number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.core.records import Record


class BenchError(RuntimeError):
    """A benchmark cannot be run; one sentence."""


LEVELS = (1, 2, 3)
"""The levels that a benchmark runs over unless it names others: 100, 100 and 50 problems."""

_NAME = re.compile(r"(\d+)_[\w.-]*\.py", re.ASCII)


@dataclass(frozen=True, order=True)
class Problem(Record):
    """One problem of KernelBench, as KernelBench itself names it."""

    level: int
    number: int
    """``problem_id``: from 1, unique in its level."""
    name: str
    """File name, such as ``19_ReLU.py``."""

    def __str__(self) -> str:
        """Returns its place in a checkout: ``level1/19_ReLU.py``."""
        return f"level{self.level}/{self.name}"


def find_problems(folder: Path, levels: Sequence[int]) -> dict[Path, Problem]:
    """Returns the problems of some levels by their files, in the order of level and number.

    Args:
        folder: a checkout of KernelBench, or the folder in it that holds ``level1``, ``level2`` and so on.

    Raises:
        BenchError: the folder lacks a level, or two files of a level have the same number.
    """
    inner = folder / "KernelBench"
    base = inner if inner.is_dir() else folder
    found: dict[Path, Problem] = {}
    for level in sorted(set(levels)):
        place = base / f"level{level}"
        if not place.is_dir():
            raise BenchError(f"{folder} holds no level{level}; name a checkout of KernelBench.")
        numbered = {
            file: Problem(level, int(match[1]), file.name)
            for file in place.iterdir()
            if (match := _NAME.fullmatch(file.name)) and file.is_file()
        }
        if not numbered:
            raise BenchError(f"{place} holds no problem; KernelBench's files are named like 1_Name.py.")
        if len({problem.number for problem in numbered.values()}) < len(numbered):
            raise BenchError(f"Two files in {place} have the same number; a problem is known by its number.")
        found |= dict(sorted(numbered.items(), key=lambda item: item[1]))
    return found


def parse_levels(text: str) -> list[int]:
    """Returns the levels that a command line names, rising.

    Raises:
        BenchError: anything but numbers from 1 to 4 with commas.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch("[1-4]", part) for part in parts):
        raise BenchError(
            f"--kernelbench takes levels from 1 to 4, such as 1,2, not {text!r}; "
            "a checkout is named by --kernelbench-path."
        )
    return sorted({int(part) for part in parts})
