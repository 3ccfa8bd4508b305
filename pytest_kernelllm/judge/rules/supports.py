"""The rule ``supports``: ``SUPPORTS`` can be read and covers a case. ``plans.make_plans`` enforces it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_kernelllm.judge.rules.rule import Rule


@dataclass(frozen=True)
class Supports(Rule):
    """The kernel module says what it supports, and supports a case of the target."""

    name = "supports"
    statement = "SUPPORTS has the published form and covers a case of the target"
    stage = "static check"
    switchable = False
