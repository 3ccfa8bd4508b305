"""The rule ``buffers updated``: buffers that the original updates in its call are updated in the same way."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.rules.rule import Rule
from kernelllm_judge.run.call import ProbeRun
from kernelllm_judge.run.comparison import check_updates

NAME = "buffers updated"


@dataclass(frozen=True)
class BuffersUpdated(Rule):
    """Buffers that the original updates, as batch normalisation does in train mode, hold the right values after the call."""

    name = NAME
    says = "buffers that the original updates hold the right values after the call"

    def check_run(self, run: ProbeRun) -> None:
        """Compares the shared buffers with what the original leaves in its own."""
        check_updates(run.judging, run.uploaded, run.prepared, NAME)
