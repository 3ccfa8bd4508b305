"""Prepares the probes of one target: inputs, a module with perturbed weights, and reference outputs."""

from __future__ import annotations

import math
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from pytest_kernelllm.core.records import Case
from pytest_kernelllm.judge.memory import make_room
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.reference import calls, numerics
from pytest_kernelllm.judge.reference.gradients import Gradients, expected_gradients
from pytest_kernelllm.judge.reference.numerics import Expected
from pytest_kernelllm.judge.reference.probes import Probe
from pytest_kernelllm.judge.reference.stress import stressed
from pytest_kernelllm.judge.reference.trivial import passing_trivial_output
from pytest_kernelllm.judge.reference.unsupported import OriginalError as OriginalError
from pytest_kernelllm.judge.reference.unsupported import (
    original_errors,
    refuse_incomparable,
    refuse_random,
    refuse_stateful,
    shape_and_kind,
)
from pytest_kernelllm.judge.shared.structure import flatten

SMALL = 64 * 1024 * 1024
"""Bytes; prepared probes up to this size are cached for the next candidate."""


class Subject(Protocol):
    """What the judge needs to know of a target; ``discover.live.LiveTarget`` implements it."""

    @property
    def cases(self) -> tuple[Case, ...]:
        """All cases of the target."""

    def case(self, name: str) -> Case:
        """Returns the case of that name."""

    def build(self, case: Case, device: str = "cpu") -> torch.nn.Module:
        """Returns a fresh module, equal to every other one built for this case."""

    def inputs(
        self, case: Case, seed: int, sizes: Mapping[str, int] | None = None, device: str = "cpu"
    ) -> Any:
        """Draws the arguments of a call with ``seed``."""

    def bind(self, call: Any) -> dict[str, Any]:
        """Returns the arguments of a call by parameter name."""


@dataclass(frozen=True)
class PreparedProbe:
    """One probe with its inputs, module and reference outputs, ready to be uploaded to a worker."""

    probe: Probe
    module: torch.nn.Module
    arguments: dict[str, Any]
    expected: Expected
    trivial: str | None
    """Name of a trivial output that would pass, so that this probe cannot tell right from wrong; None if
    none would."""

    @property
    def bytes(self) -> int:
        """Bytes of inputs, parameters, buffers and outputs together."""
        return _bytes(self.module, self.arguments, self.expected.original)


@dataclass(frozen=True)
class _Modules:
    """A target's module with one set of perturbed weights."""

    perturbed: torch.nn.Module
    exact: torch.nn.Module
    """The same in float64."""
    nearby: tuple[torch.nn.Module, ...]
    """In float64 with slightly perturbed weights: once up or down at random, once the other way."""


class ReferenceOutputs:
    """Prepares the probes of one target, and caches the small ones. Thread-safe."""

    def __init__(
        self,
        subject: Subject,
        device: str,
        policy: Policy,
        tolerance: float | None,
        preparing: threading.Lock | None = None,
    ) -> None:
        """``tolerance`` is the marker's, or None; ``preparing`` is a lock to share with others, see ``prepare``."""
        self.subject = subject
        self.device = device
        self.policy = policy
        self.tolerance = tolerance
        self._keeping = threading.Lock()
        self._preparing = preparing or threading.Lock()
        self._compiling = threading.Lock()
        self._kept: OrderedDict[Probe, PreparedProbe] = OrderedDict()
        self._built: dict[str, torch.nn.Module] = {}
        self._modules: OrderedDict[Any, _Modules] = OrderedDict()
        self._gradients: OrderedDict[Probe, Gradients] = OrderedDict()
        self._deterministic: set[str] = set()
        self._compiled: dict[str, Callable[..., Any] | None] = {}

    def prepare(self, probe: Probe) -> PreparedProbe:
        """Returns a probe with its inputs and reference outputs, from the cache if it is there.

        Raises:
            OriginalError: the original fails at this probe, or gives outputs that cannot be compared.
        """
        kept = self._find(probe)
        if kept is not None:
            return kept
        # One at a time: the user's callables draw from PyTorch's global generator.
        with self._preparing:
            kept = self._find(probe)
            if kept is not None:
                return kept
            prepared = self._prepare(probe)
        if self.device.startswith("cuda"):
            make_room(prepared.bytes)
        if prepared.bytes > SMALL:
            return prepared
        with self._keeping:
            self._kept[probe] = prepared
            while sum(q.bytes for q in self._kept.values()) > 16 * SMALL:
                self._kept.popitem(last=False)
        return prepared

    def gradients(self, prepared: PreparedProbe) -> Gradients:
        """Returns the reference gradients of a prepared probe.

        Raises:
            OriginalError: the original has no gradients, or fails at its backward pass.
        """
        probe = prepared.probe
        with self._preparing:
            if probe in self._gradients:
                return self._gradients[probe]
            with original_errors(probe):
                perturbations = list(self._perturbations(probe.seed))
                gradients = expected_gradients(
                    prepared.module,
                    prepared.arguments,
                    probe.seed,
                    self.policy,
                    perturbations,
                    self.tolerance,
                )
            if prepared.bytes <= SMALL:
                self._gradients[probe] = gradients
                while len(self._gradients) > 16:
                    self._gradients.popitem(last=False)
            return gradients

    def compiled(self, prepared: PreparedProbe) -> Callable[..., Any] | None:
        """Returns ``torch.compile`` of the original, cached by case; None if it does not compile."""
        case = prepared.probe.case
        with self._compiling:
            if case not in self._compiled:
                compiled = torch.compile(prepared.module)
                try:
                    with torch.no_grad():
                        compiled(**prepared.arguments)
                except torch.cuda.OutOfMemoryError:
                    raise  # it may run at smaller sizes
                except Exception:  # a baseline that cannot run is left out of the report
                    self._compiled[case] = None
                else:
                    self._compiled[case] = compiled
            return self._compiled[case]

    def _find(self, probe: Probe) -> PreparedProbe | None:
        with self._keeping:
            return self._kept.get(probe)

    def _prepare(self, probe: Probe) -> PreparedProbe:
        case = self.subject.case(probe.case)
        with original_errors(probe):
            modules = self._with_weights(case, probe)
            arguments = self._draw(case, probe)
            output = calls.call_original(modules.perturbed, arguments)
        refuse_incomparable(output, probe)
        structure, original = flatten(output)
        if probe.case not in self._deterministic:
            refuse_stateful(modules.perturbed, arguments, probe)
            refuse_random(modules.perturbed, arguments, original, self.policy, probe)
            self._deterministic.add(probe.case)
        exact, note = self._exact(modules, arguments, original)
        enough_memory = self._fits(modules.perturbed, arguments, original, runs=4)
        if not enough_memory:
            note += (
                "; there was too little memory to try small perturbations of the inputs and half precision"
            )
        nearby = self._nearby(modules, arguments, exact, probe.seed) if enough_memory else []
        note = note.removeprefix("; ")
        free = probe.rule == "stress"
        elements = sum(v.numel() for v in arguments.values() if isinstance(v, torch.Tensor))
        expected = numerics.expect(
            structure, original, exact, nearby, self.policy, elements=elements, free=free, note=note
        )
        del nearby
        trivial = self._passing_trivial(modules.perturbed, arguments, expected, probe, enough_memory)
        return PreparedProbe(probe, modules.perturbed, arguments, expected, trivial)

    def _with_weights(self, case: Case, probe: Probe) -> _Modules:
        """Returns the module with the probe's weights; built once for successive probes that share them."""
        seed = probe.seed if probe.weights is None else probe.weights
        key = (case.name, seed, probe.perturbed)
        if key not in self._modules:
            if case.name not in self._built:
                self._built[case.name] = self.subject.build(case, device=self.device)
            module = calls.perturbed(self._built[case.name], seed)
            for name in probe.perturbed:
                _perturb_attribute(module, name)
            nearby = (calls.copied(module, change) for change in self._perturbations(seed))
            made = _Modules(module, calls.copied(module, calls.to_float64), tuple(nearby))
            self._modules[key] = made
            while len(self._modules) > 2:
                self._modules.popitem(last=False)
        return self._modules[key]

    def _perturbations(self, seed: int) -> Iterator[calls.Change]:
        """Yields a perturbation by a few float32 eps, and its opposite."""
        step = self.policy.conditioning_eps * torch.finfo(torch.float32).eps
        for way in (step, -step):
            yield calls.perturbation(way, seed, torch.device(self.device))

    def _draw(self, case: Case, probe: Probe) -> dict[str, Any]:
        call = self.subject.inputs(case, probe.seed, dict(probe.sizes), device=self.device)
        arguments = self.subject.bind(call)
        return stressed(arguments, probe.stress, probe.seed) if probe.stress else arguments

    def _exact(
        self, modules: _Modules, arguments: dict[str, Any], original: list[torch.Tensor]
    ) -> tuple[list[Any] | None, str]:
        """Returns the leaves in float64; or None and the reason why they are unavailable."""
        why = "there is too little memory for float64"
        if self._fits(modules.perturbed, arguments, original, runs=2):
            try:
                exact = calls.run_in_float64(modules.exact, arguments)
            except torch.cuda.OutOfMemoryError:
                pass
            except Exception as error:  # e.g. an operation that asks for float32
                why = f"it fails in float64 ({type(error).__name__})"
            else:
                if [shape_and_kind(leaf) for leaf in exact] == [shape_and_kind(leaf) for leaf in original]:
                    return exact, ""
                why = "its outputs have other shapes or types in float64"
        return None, f"compared with the original as it is: {why}"

    def _nearby(
        self, modules: _Modules, arguments: dict[str, Any], exact: list[Any] | None, seed: int
    ) -> list[list[torch.Tensor]]:
        """Returns the leaves in float64 for each perturbation of weights and inputs."""
        nearby = []
        for module, change in zip(modules.nearby, self._perturbations(seed), strict=True):
            try:
                leaves = calls.run_in_float64(module, arguments, change) if exact else []
            except torch.cuda.OutOfMemoryError:
                raise  # without the sensitivity, honest kernels would be rejected
            except Exception:  # user code may check its inputs
                continue
            if exact and [shape_and_kind(leaf) for leaf in leaves] == [
                shape_and_kind(leaf) for leaf in exact
            ]:
                nearby.append(leaves)
        return nearby

    def _passing_trivial(
        self,
        module: torch.nn.Module,
        arguments: dict[str, Any],
        expected: Expected,
        probe: Probe,
        enough_memory: bool,
    ) -> str | None:
        """Returns the name of a trivial output that would pass, or None."""
        half = other = None
        # A user who sets a tolerance accepts such errors.
        if enough_memory and self.tolerance is None:
            half = calls.run_in_half(module, arguments)
        if enough_memory:
            with original_errors(probe):
                drawn = self._draw(self.subject.case(probe.case), _another(probe))
                other = calls.run_original(module, drawn)[1]
        return passing_trivial_output(expected, arguments, other, half, self.policy, self.tolerance)

    def _fits(
        self, module: torch.nn.Module, arguments: dict[str, Any], original: list[torch.Tensor], runs: int
    ) -> bool:
        """Whether there is memory for ``runs`` float64 copies of all tensors of a call."""
        room: float = math.inf
        if self.policy.judge_bytes is not None:
            room = self.policy.judge_bytes
        elif self.device.startswith("cuda"):
            free = torch.cuda.mem_get_info()[0]
            room = free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return runs * 8 * sum(t.numel() for t in _tensors(module, arguments, original)) <= room


def _another(probe: Probe) -> Probe:
    """Returns a probe with other inputs, whose outputs must not pass for this one's.

    For a near-duplicate, these are the inputs that it was derived from.
    """
    return (
        replace(probe, stress="")
        if probe.rule == "near-duplicate"
        else replace(probe, seed=probe.seed + 1_000_003)
    )


def _bytes(module: torch.nn.Module, arguments: dict[str, Any], outputs: Iterable[Any]) -> int:
    return sum(t.numel() * t.itemsize for t in _tensors(module, arguments, outputs))


def _tensors(
    module: torch.nn.Module, arguments: dict[str, Any], outputs: Iterable[Any]
) -> list[torch.Tensor]:
    """Returns all tensors that a call reads and writes."""
    values = [*arguments.values(), *module.parameters(), *module.buffers(), *outputs]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _perturb_attribute(module: torch.nn.Module, name: str) -> None:
    """Sets a float attribute to a value different enough to matter (twice an epsilon of 1e-6 is not)."""
    owner, _, attribute = name.rpartition(".")
    holder = operator.attrgetter(owner)(module) if owner else module
    value = getattr(holder, attribute)
    setattr(holder, attribute, value + 0.05 if abs(value) < 0.01 else value * 1.5)
