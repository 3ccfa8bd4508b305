"""The rule ``compile``: kernels compile for the named architecture. ``compiling`` enforces it without a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_kernelllm.judge.rules.rule import Rule


@dataclass(frozen=True)
class Compile(Rule):
    """Every kernel compiles for the GPU architecture; on a GPU, running it shows that."""

    name = "compile"
    statement = "every kernel compiles for the named GPU architecture"
    stage = "compile"
    device = "cpu"
