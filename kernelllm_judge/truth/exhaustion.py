"""Finds out which inputs' values can all be run, and which kinds of stress that makes needless."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.core.stages import RUNNING
from kernelllm_judge.truth import calls
from kernelllm_judge.truth.exhaust import LARGEST, depends_on_single_elements, read_kind
from kernelllm_judge.truth.originals import Originals
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.stress import TRANSFORMS


class Exhaustion:
    """Chooses probes of one target. Not thread-safe."""

    def __init__(self, originals: Originals, few: Callable[[Probe, dict[str, Any]], dict[str, Any]]) -> None:
        """``few`` returns some rows of a large call's arguments, where rows are independent."""
        self._originals = originals
        self._few = few
        self._single: dict[tuple[str, str], bool] = {}
        """Whether outputs depend on single elements, by case and input."""

    def asked(self, probes: Sequence[Probe]) -> list[Probe]:
        """Returns the probes without those of values on which outputs do not depend one by one.

        Where all values of all floating inputs are run, they are no more stressed in other ways.
        """
        single = {
            (probe.case, every.name)
            for probe in probes
            if (every := read_kind(probe.stress)) and self._depend_on_single(probe, every.name)
        }
        return [probe for probe in probes if self._is_asked(probe, single)]

    def _is_asked(self, probe: Probe, single: set[tuple[str, str]]) -> bool:
        if every := read_kind(probe.stress):
            return (probe.case, every.name) in single
        if probe.rule != "stress" or probe.stress not in TRANSFORMS:
            return True
        return not all((probe.case, name) in single for name in self._floating(probe))

    def _floating(self, probe: Probe) -> list[str]:
        inputs = self._originals.subject.case(probe.case).domain.inputs
        return [k for k, v in inputs.items() if isinstance(v, TensorSpec) and "float" in v.dtype]

    def _depend_on_single(self, probe: Probe, name: str) -> bool:
        key = probe.case, name
        if len(self._floating(probe)) > 1:
            return False  # what the other one multiplies is as far off as that is large
        if key not in self._single:
            try:
                with self._originals.in_stage(RUNNING):
                    self._single[key] = self._find_out(probe, name)
            except torch.OutOfMemoryError:
                self._single[key] = False
            except Exception:  # the user's code may raise anything
                self._single[key] = False
        return self._single[key]

    def _find_out(self, probe: Probe, name: str) -> bool:
        case, originals = self._originals.subject.case(probe.case), self._originals
        some = self._some(probe, probe.seed)
        if not isinstance(some[name], torch.Tensor) or some[name].numel() > LARGEST:
            return False
        others = self._some(probe, probe.seed + 1)
        modules = originals.with_weights(case, probe, some)

        def run(arguments: dict[str, Any]) -> list[torch.Tensor]:
            return calls.run_original(modules.perturbed, arguments)[1]

        return depends_on_single_elements(run, some, others, name)

    def _some(self, probe: Probe, seed: int) -> dict[str, Any]:
        case = self._originals.subject.case(probe.case)
        few = self._few(probe, self._originals.draw(case, probe, seed))
        return calls.mapped(few, torch.clone)
