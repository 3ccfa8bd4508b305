"""The rule ``load``: the kernel module can be imported. ``judge.workers`` enforces it."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.rules.rule import Rule


@dataclass(frozen=True)
class Load(Rule):
    """The kernel module can be imported in a worker."""

    name = "load"
    says = "the kernel module can be imported"
    stage = "load"
    switchable = False
