"""The rule ``compile``: every kernel compiles for the GPU architecture. ``judge.compiling`` enforces it."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.rules.rule import Rule


@dataclass(frozen=True)
class Compile(Rule):
    """Every kernel compiles for the GPU architecture. Checked where there is no GPU to run it on."""

    name = "compile"
    says = "every kernel compiles for the named GPU architecture"
    stage = "compile"
    device = "cpu"
