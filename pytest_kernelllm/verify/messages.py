"""What ``kernelllm verify`` tells its judging processes. Imports nothing heavy, because both sides need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_kernelllm.core.records import Environment, Record, Target


@dataclass(frozen=True)
class Hello(Record):
    """What a judging process is told first."""

    environment: Environment
    gpu_uuid: str
    deadline: float
    isolation: Literal["best", "strict"]


@dataclass(frozen=True)
class Order(Record):
    """One candidate to judge."""

    reference: str
    """Names the reference by its content: as long as it is the same, the exam is."""
    root: str
    """Folder that the target's path is relative to."""
    target: Target
    text: str
    """The candidate, as it stands in its file."""
    note: str
    """The candidate's file name."""
    min_speedup: float
    baseline: Literal["eager", "compile"]
    timing: bool
