"""The rule ``gradients``: gradients are right, for targets marked ``backward=True``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kernelllm_judge.findings import Decision
from kernelllm_judge.rules.effects import BuffersUpdated, check_inputs_kept
from kernelllm_judge.rules.outputs import stress_sizes
from kernelllm_judge.rules.rule import Rule, SupportedCase
from kernelllm_judge.run.backward import check_gradients, run_backward
from kernelllm_judge.run.call import ProbeRun
from kernelllm_judge.run.comparison import check_outputs, check_updates
from kernelllm_judge.truth.gradients import INCOMING, PARAMETER
from kernelllm_judge.truth.probes import Probe

FROZEN = 4
"""Inputs and parameters that are frozen alone, at most; all parameters are frozen together, too."""

AGAIN: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "expanded": ("kept", "in a second backward pass through the same graph, "),
        "transposed": (
            "changed",
            "after inputs or outputs were changed in place, which it would notice if it had saved them with "
            "`save_for_backward`, ",
        ),
    }
)
"""How the backward pass is run a second time (``worker.backward``), and the reason's beginning, by the layout of gradients."""

ASKED = frozenset({"values", "sizes", "attributes", "weights", "integer inputs", "decisions", "gradients"})
"""Rules at whose probes gradients are checked as well."""


@dataclass(frozen=True)
class GradientsRule(Rule):
    """Gradients of inputs and parameters are right, for targets marked ``backward=True``."""

    name = "gradients"
    says = "gradients are right, where the target asks for them, however those of its outputs lie in memory, and however large they are"

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe for each kind of gradients of outputs."""
        sizes = stress_sizes(supported)
        for number, kind in enumerate(INCOMING if supported.case.domain.grad else ()):
            yield supported.probe(self.name, sizes, self.seed + number, incoming=kind)

    def check_run(self, run: ProbeRun) -> None:
        """Runs the probe again with its backward pass, and compares the gradients."""
        probe, judging = run.prepared.probe, run.judging
        if not judging.references.subject.case(probe.case).domain.grad or probe.rule not in ASKED:
            return
        again, context = AGAIN.get(probe.incoming, ("", ""))
        backward = run_backward(judging, run.prepared, again)
        check_inputs_kept(backward.uploaded, run.prepared, judging.findings)
        check_updates(
            judging, backward.uploaded, run.prepared, BuffersUpdated.name, "after its backward pass, "
        )
        check_gradients(judging, run.prepared, backward, self.name, context)
        check_outputs(judging, backward.uploaded, run.prepared, self.name, "after its backward pass, ")
        trivial = backward.gradients.trivial
        if trivial is not None and probe.rule == "values" and run.prepared.trivial is None:
            reason = f"{trivial} would pass as the gradients at {run.where}; give inputs that tell them apart"
            raise Decision("inconclusive", "correctness", reason)
        if again:
            self._check_frozen(run, again, backward.asked)

    def _check_frozen(self, run: ProbeRun, again: str, names: Sequence[str]) -> None:
        """Runs the probe with some inputs and parameters that require no gradient, as in a frozen module."""
        parameters = frozenset(name for name in names if name.startswith(PARAMETER))
        ways = dict.fromkeys([parameters, *(frozenset([name]) for name in names[:FROZEN])])
        asked = [frozen for frozen in ways if 0 < len(frozen) < len(names)]
        for frozen in asked[again == "kept" :: 2]:
            backward = run_backward(run.judging, run.prepared, frozen=frozen.__contains__)
            context = f"with {', '.join(f'`{name}`' for name in sorted(frozen)[:4])} frozen, "
            check_gradients(run.judging, run.prepared, backward, self.name, context)
