"""The rule ``supports``: ``SUPPORTS`` is valid, covers a case and claims nothing beyond the cases. ``judge.plans`` enforces it."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.rules.rule import Rule


@dataclass(frozen=True)
class Supports(Rule):
    """The kernel module declares what it supports: at least one case of the target, and nothing beyond the cases."""

    name = "supports"
    says = "SUPPORTS has the published form, covers a case of the target, and claims nothing that lies within no case"
    stage = "static check"
    switchable = False
