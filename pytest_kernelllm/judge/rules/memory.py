"""The rule ``memory``: every access is checked in Triton's interpreter. ``run.call`` enforces it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_kernelllm.judge.rules.rule import Rule


@dataclass(frozen=True)
class Memory(Rule):
    """Kernels stay inside their tensors, read only what was written, and have no races."""

    name = "memory"
    says = (
        "no kernel reads or writes outside its tensors, reads memory that nothing has written, or has programs "
        "that race; in Triton's interpreter, also where the candidate runs on a GPU"
    )
