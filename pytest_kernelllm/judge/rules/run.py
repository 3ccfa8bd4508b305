"""The rule ``run``: every call ends well. ``run.call`` and ``workers.Workers`` enforce it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_kernelllm.judge.rules.rule import Rule


@dataclass(frozen=True)
class RunRule(Rule):
    """Every call ends without an error and in time, and the process stays alive."""

    name = "run"
    statement = "every call ends, without an error, in time and with the process alive"
    stage = "run"
    switchable = False
