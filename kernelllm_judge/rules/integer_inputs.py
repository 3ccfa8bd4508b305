"""The rule ``integer inputs``: outputs are right for all integers and booleans that the original accepts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.rules.rule import SupportedCase
from kernelllm_judge.rules.stress import stress_sizes
from kernelllm_judge.rules.values import OutputRule
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.variations import NAMED, OUT_OF_RANGE, REPEATED


@dataclass(frozen=True)
class IntegerInputs(OutputRule):
    """Outputs are right for repeated, negative and very large integers, and for rows that are all true or false."""

    name = "integer inputs"
    says = (
        "outputs are right for repeated, negative and large integers, for those that the module names, for the greatest index, "
        "and for all-true and all-false rows"
    )

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe in the inputs' own range, one beyond it, and one with numbers that mean something."""
        specs = supported.case.domain.inputs.values()
        dtypes = {spec.dtype for spec in specs if isinstance(spec, TensorSpec)}
        sizes, _ = stress_sizes(supported)
        if any(not dtype.startswith(("float", "bfloat")) for dtype in dtypes):
            yield supported.probe(self.name, sizes, self.seed, stress=REPEATED)
        if any("int" in dtype for dtype in dtypes):
            yield supported.probe(self.name, sizes, self.seed + 1, stress=OUT_OF_RANGE)
            yield supported.probe(self.name, sizes, self.seed + 2, stress=NAMED)
