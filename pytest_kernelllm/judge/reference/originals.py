"""Builds the original with perturbed weights, draws its inputs, and tries what else it accepts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pytest_kernelllm.core.records import Case
from pytest_kernelllm.core.stages import InStage
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.reference import calls, weights
from pytest_kernelllm.judge.reference.acceptance import Trial
from pytest_kernelllm.judge.reference.probes import Probe
from pytest_kernelllm.judge.reference.subject import Subject

KEPT = 2
"""Sets of weights whose modules are kept for the next probe."""


@dataclass(frozen=True)
class Modules:
    """A target's module with one set of perturbed weights."""

    perturbed: torch.nn.Module
    exact: torch.nn.Module
    """The same in float64."""
    nearby: tuple[torch.nn.Module, ...]
    """In float64 with slightly perturbed weights: once up or down at random, once the other way."""


class Originals:
    """Builds one target's modules. Not thread-safe: ``ReferenceOutputs`` prepares one probe at a time."""

    def __init__(self, subject: Subject, device: str, policy: Policy, in_stage: InStage) -> None:
        """Builds nothing yet; for the arguments see ``ReferenceOutputs``."""
        self.subject = subject
        self.device = device
        self.policy = policy
        self.in_stage = in_stage
        self._built: dict[str, torch.nn.Module] = {}
        self._on_cpu: dict[str, torch.nn.Module] = {}
        self._modules: OrderedDict[Any, Modules] = OrderedDict()

    def with_weights(self, case: Case, probe: Probe, drawn: dict[str, Any]) -> Modules:
        """Returns the module with the probe's weights; built once for successive probes that share them."""
        seed = probe.seed if probe.weights is None else probe.weights
        key = (case.name, seed, probe.perturbed, probe.values, probe.state)
        if key not in self._modules:
            module = calls.perturb(self._fresh(case), seed)
            pinned = case.domain.attributes
            calls.count_on(module, [name for name in pinned if f"value:{name}" not in pinned], seed)
            trial = self.trial(case, module, drawn, _exact_copy)

            def accepts(other: torch.nn.Module) -> bool:
                return trial.accepts(other, drawn, nonfinite=probe.state == weights.WITH_NAN)

            if probe.perturbed:
                weights.change_attributes(module, probe.perturbed, probe.values, accepts)
            if probe.state:
                weights.change_weights(module, probe.state, seed, accepts)
            nearby = (calls.copied(module, change) for change in self.perturbations(seed))
            made = Modules(module, _exact_copy(module), tuple(nearby))
            self._modules[key] = made
            while len(self._modules) > KEPT:
                self._modules.popitem(last=False)
        return self._modules[key]

    def draw(self, case: Case, probe: Probe, seed: int) -> dict[str, Any]:
        """Returns the arguments of a call at the probe's sizes, drawn with ``seed``."""
        return self.subject.bind(self.subject.inputs(case, seed, dict(probe.sizes), device=self.device))

    def trial(
        self,
        case: Case,
        module: torch.nn.Module,
        drawn: dict[str, Any],
        exact: Callable[[torch.nn.Module], torch.nn.Module],
    ) -> Trial:
        """Returns the original with these arguments, to try others; ``exact`` makes its copy in float64."""

        def on_cpu() -> torch.nn.Module:
            if case.name not in self._on_cpu:
                self._on_cpu[case.name] = self.subject.build(case)
            return self._on_cpu[case.name]

        on_gpu = self.device.startswith("cuda")
        return Trial(module, exact, drawn, on_cpu if on_gpu else None, self.in_stage)

    def perturbations(self, seed: int) -> Iterator[calls.Change]:
        """Yields a perturbation by a few float32 eps, and its opposite."""
        step = self.policy.conditioning_eps * torch.finfo(torch.float32).eps
        for way in (step, -step):
            yield calls.perturbation(way, seed, torch.device(self.device))

    def _fresh(self, case: Case) -> torch.nn.Module:
        """Returns a module of its own with initial weights, as a copy where copies work."""
        built = self._built.get(case.name)
        if built is None:
            built = self._built[case.name] = self.subject.build(case, device=self.device)
        if calls.holds_closures(built):
            return self.subject.build(case, device=self.device)
        return calls.copied(built, torch.clone)


def _exact_copy(module: torch.nn.Module) -> torch.nn.Module:
    return calls.copied(module, calls.to_float64)
