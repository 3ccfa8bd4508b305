"""The rule ``supports``: ``SUPPORTS`` is valid and covers a case. ``judge.plans`` enforces it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_kernelllm.judge.rules.rule import Rule


@dataclass(frozen=True)
class Supports(Rule):
    """The kernel module declares what it supports, and supports at least one case of the target."""

    name = "supports"
    says = "SUPPORTS has the published form and covers a case of the target"
    stage = "static check"
    switchable = False
