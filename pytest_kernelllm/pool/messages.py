"""The messages from ``kernelllm verify`` to its judging processes. Imports nothing heavy, because both sides need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_kernelllm.core.records import Environment, Record, Target


@dataclass(frozen=True)
class Handshake(Record):
    """The first message to a judging process."""

    environment: Environment
    gpu_uuid: str
    """Names the GPU's lock; empty without a GPU."""
    deadline: float
    """Seconds that one candidate may take."""
    isolation: Literal["best", "strict"]
    gpu_memory: int = 0
    """Bytes of GPU memory that judging may take; 0: nearly all of it."""


@dataclass(frozen=True)
class JudgeRequest(Record):
    """One candidate to judge."""

    reference: str
    """Hash of the reference's content: as long as it is the same, its reference outputs are kept."""
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
