"""The rule ``guards``: nothing is written before or after any tensor."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.rules.rule import Rule
from kernelllm_judge.run.call import ProbeRun


@dataclass(frozen=True)
class Guards(Rule):
    """The guard zones around every tensor are intact, in shared buffers and in the worker's own memory."""

    name = "guards"
    says = "nothing is written before or after any tensor"

    def check_run(self, run: ProbeRun) -> None:
        """Checks the judge's guard zones, and those that the worker reports."""
        reported = run.reply.get("broken")
        broken = (
            [str(item)[:200] for item in reported]
            if isinstance(reported, list)
            else ["at an unreadable place"]
        )
        if not run.judging.allocator.intact():
            broken.append("before or behind one of its inputs, parameters or outputs")
        sentence = f"it writes {', and '.join(broken)}, at {run.where}"
        run.judging.findings.require(self.name, "guard zones", not broken, sentence)
