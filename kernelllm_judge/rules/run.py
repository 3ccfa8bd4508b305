"""The rule ``run``: every call succeeds. ``judge.run.call`` and ``judge.workers`` enforce it."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.rules.rule import Rule


@dataclass(frozen=True)
class RunRule(Rule):
    """Every call returns without an error and in time, and the process stays alive."""

    name = "run"
    says = "every call ends, without an error, in time and with the process alive"
    stage = "run"
    switchable = False
