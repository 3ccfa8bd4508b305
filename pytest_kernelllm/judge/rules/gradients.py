"""The rule ``gradients``: gradients are right, for targets marked ``backward=True``."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_kernelllm.judge.findings import Decision
from pytest_kernelllm.judge.rules.inputs_kept import check_inputs_kept
from pytest_kernelllm.judge.rules.rule import Rule
from pytest_kernelllm.judge.run.backward import check_gradients, run_backward
from pytest_kernelllm.judge.run.call import ProbeRun

ASKED = frozenset({"values", "sizes", "attributes"})
"""Rules at whose probes gradients are checked as well."""


@dataclass(frozen=True)
class GradientsRule(Rule):
    """Gradients of inputs and parameters are right, for targets marked ``backward=True``."""

    name = "gradients"
    says = "gradients are right, where the target asks for them"

    def check_run(self, run: ProbeRun) -> None:
        """Runs the probe again with its backward pass, and compares the gradients."""
        probe, judging = run.prepared.probe, run.judging
        if not judging.references.subject.case(probe.case).domain.grad or probe.rule not in ASKED:
            return
        backward = run_backward(judging, run.prepared)
        check_inputs_kept(backward.uploaded, run.prepared, judging.findings)
        check_gradients(judging, run.prepared, backward, self.name)
        trivial = backward.gradients.trivial
        if trivial is not None and run.prepared.trivial is None:
            reason = f"{trivial} would pass as the gradients at {run.where}; give inputs that tell them apart"
            raise Decision("inconclusive", "correctness", reason)
