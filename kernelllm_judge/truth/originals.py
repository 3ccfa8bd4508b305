"""Builds the original with perturbed weights, draws its inputs, and tries what else it accepts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.records import Case
from kernelllm_judge.core.stages import RUNNING, InStage
from kernelllm_judge.memory import LARGE_STATE, CallBytes, most
from kernelllm_judge.policy import Policy
from kernelllm_judge.target.codes import redraw_codes
from kernelllm_judge.truth import calls, weights
from kernelllm_judge.truth.acceptance import Trial, Unasked
from kernelllm_judge.truth.needs import call_bytes
from kernelllm_judge.truth.prepared import bytes_of, tensors_of_call
from kernelllm_judge.truth.probes import Probe, Subject

KEPT = 2
"""Sets of weights whose modules are kept for the next probe."""

LARGE = 1 << 26
"""Bytes of weights that are not kept between verdicts."""


@dataclass(frozen=True)
class Modules:
    """A target's module with one set of perturbed weights."""

    perturbed: torch.nn.Module
    changes: Callable[[int], Iterator[calls.Change]] = field(repr=False)
    """Yields the perturbations of ``nearby``."""
    kept: bool
    """Whether the copies are kept. Those of large weights are made for each use, one at a time."""
    _wraps: tuple[Modules, Callable[[torch.nn.Module], torch.nn.Module]] | None = field(
        default=None, repr=False
    )
    """The modules whose copies are wrapped, and the wrapper."""
    _nearby: dict[int, list[torch.nn.Module]] = field(default_factory=dict, init=False, repr=False)
    """Perturbed modules by the number of directions."""

    @property
    def exact(self) -> torch.nn.Module:
        """The same in float64."""
        if self._wraps:
            modules, wrap = self._wraps
            return wrap(modules.exact)
        return self._exact if self.kept else self._copied(calls.to_float64)

    def nearby(self, directions: int) -> Iterator[torch.nn.Module]:
        """Yields it in float64 with slightly perturbed weights, see ``Originals.perturbations``."""
        if self._wraps:
            modules, wrap = self._wraps
            return map(wrap, modules.nearby(directions))
        many = directions > 1 and bytes_of(tensors_of_call(self.perturbed, {}, ())) > LARGE
        if many or not self.kept:
            return map(self._copied, self.changes(directions))
        if directions not in self._nearby:
            self._nearby[directions] = [self._copied(change) for change in self.changes(directions)]
        return iter(self._nearby[directions])

    def giving_buffers(self, names: tuple[str, ...]) -> Modules:
        """Returns the modules such that they give these buffers after a call, behind their outputs."""
        wrap = partial(calls.Updating, names=names)
        return replace(self, perturbed=wrap(self.perturbed), _wraps=(self, wrap))

    @cached_property
    def _exact(self) -> torch.nn.Module:
        return self._copied(calls.to_float64)

    def _copied(self, change: calls.Change) -> torch.nn.Module:
        return calls.copied(self.perturbed, change)


class Originals:
    """Builds one target's modules. Not thread-safe: ``ReferenceOutputs`` prepares one probe at a time."""

    def __init__(
        self, subject: Subject, device: str, policy: Policy, in_stage: InStage, budget: int | None = None
    ) -> None:
        """Prepares; modules are built when they are asked for. for the arguments see ``ReferenceOutputs``."""
        self.subject = subject
        self.device = device
        self.policy = policy
        self.in_stage = in_stage
        self._budget = budget
        self._built: dict[str, torch.nn.Module] = {}
        self._built_on_cpu: dict[str, torch.nn.Module] = {}
        self._modules: OrderedDict[Any, Modules] = OrderedDict()
        self._normalized: dict[tuple[str, int], dict[str, torch.Tensor]] = {}
        """By case and seed: the module's tensors once its weights are normalized."""

    @cached_property
    def call(self) -> CallBytes:
        """The bytes of the largest call of any case."""
        with self.in_stage(RUNNING):
            return most(call_bytes(self.subject, case, self._on_cpu(case)) for case in self.subject.cases)

    def with_weights(self, case: Case, probe: Probe, drawn: dict[str, Any]) -> Modules:
        """Returns the module with the probe's weights; built once for successive probes that share them.

        ``drawn`` are arguments with which other weights are tried.
        """
        seed = probe.seed if probe.weights is None else probe.weights
        moved = probe.directed if probe.directed and probe.directed.weights else None
        key = (case.name, seed, probe.perturbed, probe.values, probe.normalized, probe.state, moved)
        if key not in self._modules:
            few = self._budget is not None and self.call.state > LARGE_STATE
            while few and self._modules:
                self._modules.popitem()
            module = calls.perturb(self._fresh(case), seed)
            calls.renumber(module, self.subject.unread, seed)
            pinned = case.domain.attributes
            free = [name for name in pinned if f"value:{name}" not in pinned]
            calls.count_on(module, free, seed)
            redraw_codes(module, free, seed)
            if probe.normalized:
                self._normalize(case, seed, module, drawn)
            trial = self.trial(case, module, drawn, _exact_copy)
            if probe.perturbed or probe.state or moved:
                exact = trial.accepts_own()
            accepts = partial(trial.accepts, arguments=drawn, nonfinite=probe.state == weights.WITH_NAN)
            if probe.perturbed:
                weights.change_attributes(module, probe.perturbed, probe.values, accepts)
            if probe.state or moved:
                if not exact:
                    raise Unasked("the original is not exact with any weights")
                weights.change_weights(module, moved or probe.state, seed, accepts)
            self._modules[key] = Modules(module, partial(self.perturbations, seed), not few)
            while len(self._modules) > KEPT:
                self._modules.popitem(last=False)
        return self._modules[key]

    def _normalize(self, case: Case, seed: int, module: torch.nn.Module, drawn: dict[str, Any]) -> None:
        """Gives a module its normalized weights, which the first probe with these weights determines for all others.

        Raises:
            Unasked: see ``weights.normalize``.
        """
        if (case.name, seed) not in self._normalized:
            trial = self.trial(case, module, drawn, _exact_copy)
            if not trial.accepts_own():
                raise Unasked("the original is not exact with any weights")
            # Where nothing but biases reaches the outputs, these say nothing of how exact others are, in TF32 for example.
            accepts = partial(trial.accepts, arguments=drawn, nonfinite=False, rough=True)
            weights.normalize(module, drawn, accepts)
            self._normalized[case.name, seed] = {
                name: tensor.detach().clone() for name, tensor in _tensors(module).items()
            }
        for name, tensor in _tensors(module).items():
            tensor.data = self._normalized[case.name, seed][name].clone()

    def forget(self) -> None:
        """Drops modules whose weights are large: what is kept between verdicts has no lease."""
        if self.call.state > LARGE:
            self._modules.clear()
            self._built.clear()
            self._normalized.clear()

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
        on_cpu = partial(self._on_cpu, case) if accelerator.is_gpu(self.device) else None
        return Trial(module, exact, drawn, on_cpu, self.in_stage)

    def visible_perturbation(self, seed: int) -> calls.Change:
        """Returns a perturbation by a few float32 eps, or by the last digit where that is more."""
        step = self.policy.conditioning_eps * torch.finfo(torch.float32).eps
        return calls.perturbation(step, seed, torch.device(self.device), visible=True)

    def perturbations(self, seed: int, directions: int = 1) -> Iterator[calls.Change]:
        """Yields a perturbation by a few float32 eps, its opposite, and some in other directions."""
        step = self.policy.conditioning_eps * torch.finfo(torch.float32).eps
        yield calls.perturbation(step, seed, torch.device(self.device))
        yield calls.perturbation(-step, seed, torch.device(self.device))
        for further in range(1, directions):
            yield calls.perturbation(step, seed + further, torch.device(self.device))

    def built(self, case: Case) -> torch.nn.Module:
        """Returns a module of a case that is there already, if one is: for its form, not for its weights."""
        built = self._built.get(case.name)
        return self._on_cpu(case) if built is None else built

    def _on_cpu(self, case: Case) -> torch.nn.Module:
        if case.name not in self._built_on_cpu:
            self._built_on_cpu[case.name] = self.subject.build(case)
        return self._built_on_cpu[case.name]

    def _fresh(self, case: Case) -> torch.nn.Module:
        """Returns a module of its own with initial weights, as a copy where copies work."""
        built = self._built.get(case.name)
        if built is None:
            built = self._built[case.name] = self.subject.build(case, device=self.device)
        if calls.holds_closures(built):
            return self.subject.build(case, device=self.device)
        return calls.copied(built, torch.clone)


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _exact_copy(module: torch.nn.Module) -> torch.nn.Module:
    return calls.copied(module, calls.to_float64)
