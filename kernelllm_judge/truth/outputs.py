"""Prepares the probes of one target: inputs, a module with perturbed weights, and reference outputs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.records import Case
from kernelllm_judge.core.stages import RUNNING, InStage, unwatched
from kernelllm_judge.findings import OriginalError as OriginalError
from kernelllm_judge.memory import CallBytes, make_room, release_cache
from kernelllm_judge.policy import Policy
from kernelllm_judge.shared.leaves import flatten
from kernelllm_judge.truth import calls, numerics
from kernelllm_judge.truth.acceptance import Unasked as Unasked, refuse_masks
from kernelllm_judge.truth.compiled import CompiledOriginals
from kernelllm_judge.truth.exhaustion import Exhaustion
from kernelllm_judge.truth.gradients import Gradients, expected_gradients, forms_of_gradients
from kernelllm_judge.truth.inputs import Inputs
from kernelllm_judge.truth.large import LargeCalls
from kernelllm_judge.truth.numerics import Expected
from kernelllm_judge.truth.originals import Modules, Originals
from kernelllm_judge.truth.prepared import PreparedProbe, Updates, bytes_of, form_of, tensors_of_call
from kernelllm_judge.truth.probes import Probe, Subject as Subject
from kernelllm_judge.truth.stress import planted
from kernelllm_judge.truth.truth import Truth
from kernelllm_judge.truth.unsupported import (
    original_errors,
    refuse_incomparable,
    refuse_random,
    updated_buffers,
)

SMALL = 64 * 1024 * 1024
"""Bytes; prepared probes up to this size are cached for the next candidate."""

CLOSE = 16
"""Most probes of which what was found out at more expense is cached."""


class ReferenceOutputs:
    """Prepares the probes of one target, and caches the small ones. Thread-safe."""

    def __init__(
        self,
        subject: Subject,
        device: str,
        policy: Policy,
        tolerance: float | None,
        preparing: threading.Lock | None = None,
        in_stage: InStage = unwatched,
        budget: int | None = None,
    ) -> None:
        """Starts without prepared probes.

        Args:
            device: where the original runs.
            preparing: a lock to share with others, see ``prepare``.
            in_stage: gives the context for each run of the original.
            budget: bytes of GPU memory that a verdict may take; None: as many as there are.
        """
        self.subject = subject
        self.device = device
        self.policy = policy
        self.tolerance = tolerance
        self.compiled = CompiledOriginals()
        self._keeping = threading.Lock()
        self._preparing = preparing or threading.Lock()
        self._originals = Originals(subject, device, policy, in_stage, budget)
        self._inputs = Inputs(self._originals)
        self._truth = Truth(self._originals, tolerance)
        self._large = LargeCalls(self._originals, self._inputs, self._truth, self.comparable)
        self._exhaustion = Exhaustion(self._originals, self._large.few)
        self._kept: OrderedDict[Probe, PreparedProbe] = OrderedDict()
        self._close: OrderedDict[Probe, tuple[Expected, Expected]] = OrderedDict()
        self._gradients: OrderedDict[tuple[Probe, bool], Gradients] = OrderedDict()
        self._updated: dict[str, tuple[str, ...]] = {}
        self._unasked: dict[Probe, str] = {}
        self._forms: dict[Probe, Expected] = {}
        """Forms of the outputs of probes that are only timed: tensors on the meta device."""
        self._gradient_forms: dict[Probe, Gradients] = {}
        """Forms of their gradients, where the incoming gradients take little memory."""

    @property
    def call(self) -> CallBytes:
        """The bytes of the largest call of any case, found out by a run without data."""
        with self._preparing:
            return self._originals.call

    def module(self, case: Case) -> torch.nn.Module:
        """Returns a module of a case, for its form."""
        with self._preparing:
            return self._originals.built(case)

    def prepare(self, probe: Probe) -> PreparedProbe:
        """Returns a probe with its inputs and reference outputs, from the cache if it is there.

        Raises:
            OriginalError: the original fails at this probe, or gives outputs that cannot be compared.
            Unasked: the original does not accept what the probe would change.
        """
        kept = self._find(probe)
        if kept is not None:
            return kept
        # One at a time: the user's callables draw from PyTorch's global generator.
        with self._preparing:
            kept = self._find(probe)
            if kept is not None:
                return kept
            if probe in self._unasked:
                raise Unasked(self._unasked[probe])
            try:
                prepared = self._prepare(probe)
            except Unasked as nothing:
                self._unasked[probe] = f"{nothing}"
                raise
            self._keep(prepared)
        if accelerator.is_gpu(self.device):
            make_room(prepared.bytes, self.call.spare())
        return prepared

    def prepare_to_time(self, probe: Probe) -> PreparedProbe:
        """Returns a probe to be timed only: nothing is known about its outputs but their forms. Not cached.

        Raises:
            OriginalError: the original fails at this probe.
        """
        with self._preparing, original_errors(probe), self._originals.in_stage(RUNNING):
            case = self.subject.case(probe.case)
            arguments = self._originals.draw(case, probe, probe.seed)
            modules = self._originals.with_weights(case, probe, arguments)
            if probe not in self._forms:
                output = calls.call_original(modules.perturbed, arguments)
                structure, original = flatten(output)
                self._forms[probe] = numerics.Expected(structure, tuple(map(form_of, original)), (), ())
                del output, original
                if accelerator.is_gpu(self.device):
                    release_cache(0)  # a lease to time in has no room for what that call left
        return PreparedProbe(probe, modules.perturbed, arguments, self._forms[probe], None)

    def gradients(self, prepared: PreparedProbe, closely: bool = False) -> Gradients:
        """Returns the reference gradients of a prepared probe; ``closely`` as for ``Truth.expected``.

        Raises:
            OriginalError: the original has no gradients, or fails at its backward pass.
        """
        probe = prepared.probe
        with self._preparing, torch.enable_grad():  # a timed call is compared where none are kept
            if (probe, closely) in self._gradients:
                return self._gradients[probe, closely]
            with original_errors(probe), self._originals.in_stage(RUNNING):
                further = self.policy.honest_runs if closely else 0
                perturbations = list(self._originals.perturbations(probe.seed, 1 + further))
                gradients = expected_gradients(
                    prepared.module,
                    prepared.arguments,
                    probe.seed,
                    self.policy,
                    perturbations,
                    self.tolerance,
                    probe.incoming,
                    [
                        self._truth.nearby(prepared.arguments, probe.seed + number)
                        for number in range(further)
                    ],
                )
            if prepared.bytes <= SMALL:
                self._gradients[probe, closely] = gradients
                while len(self._gradients) > 16:
                    self._gradients.popitem(last=False)
            return gradients

    def gradients_to_time(self, prepared: PreparedProbe) -> Gradients:
        """Returns what a backward pass is asked for where it is timed only.

        Raises:
            OriginalError: the original has no gradients, or fails at its backward pass.
        """
        probe = prepared.probe
        with self._preparing, original_errors(probe), self._originals.in_stage(RUNNING):
            if probe in self._gradient_forms:
                return self._gradient_forms[probe]
            forms = forms_of_gradients(prepared.module, prepared.arguments, probe.seed)
            if accelerator.is_gpu(self.device):
                release_cache(0)  # as in prepare_to_time
            if prepared.bytes <= SMALL:
                self._gradient_forms[probe] = forms
            return forms

    def forget(self) -> None:
        """Drops what takes much memory of the GPU, at the end of a verdict."""
        with self._preparing:
            if self._originals.call.state > SMALL:
                self.compiled.clear()
            self._originals.forget()

    def asked(self, probes: Sequence[Probe]) -> list[Probe]:
        """Returns the probes that are asked, see ``Exhaustion.asked``.

        Raises:
            OriginalError: the original fails.
        """
        with self._preparing:
            return self._exhaustion.asked(probes)

    def _find(self, probe: Probe) -> PreparedProbe | None:
        with self._keeping:
            return self._kept.get(probe)

    def _keep(self, prepared: PreparedProbe) -> None:
        if prepared.bytes > SMALL:
            return
        with self._keeping:
            self._kept[prepared.probe] = prepared
            while sum(q.bytes for q in self._kept.values()) > 16 * SMALL:
                self._kept.popitem(last=False)

    def _closely(self, probe: Probe) -> tuple[Expected, Expected]:
        """Returns what is expected at a small probe, and of its updates, found out at more expense. All is drawn again: copies of
        weights are not kept for what few candidates need."""
        with self._preparing:
            if probe not in self._close:
                found = self._prepare(probe, closely=True)
                assert isinstance(found.expected, Expected)  # a large probe is not looked at in this way
                self._close[probe] = found.expected, found.updates.expected
                while len(self._close) > CLOSE:
                    self._close.popitem(last=False)
            return self._close[probe]

    def _in_tf32(self, probe: Probe) -> Expected | None:
        """Returns what is expected where TF32 may be used; None where it makes no difference. All is drawn again, see ``_closely``."""
        with self._preparing:
            if not self._truth.may_use_tf32(probe):
                return None
            expected = self._prepare(probe, closely=True, tf32=True).expected
            return expected if isinstance(expected, Expected) and self._truth.may_use_tf32(probe) else None

    def _without_shortcuts(self, probe: Probe) -> Expected | None:
        """Returns what is expected where the original takes no shortcut that loses infinities; None where it takes none anyway."""
        with self._preparing, calls.WithoutShortcuts() as mode:
            expected = self._prepare(probe, closely=True).expected
            return expected if mode.used and isinstance(expected, Expected) else None

    def _prepare(self, probe: Probe, closely: bool = False, tf32: bool = False) -> PreparedProbe:
        case = self.subject.case(probe.case)
        with original_errors(probe), self._originals.in_stage(RUNNING):
            drawn = self._originals.draw(case, probe, probe.seed)
            modules = self._originals.with_weights(case, probe, self._large.few(probe, drawn))
            sliced = self._large.sliced_case(probe, modules, drawn)
            if sliced is not None:
                return self._large.prepare_slices(probe, modules, drawn, sliced)
            changes = self._inputs.changes(case, probe, modules, drawn, lambda arguments: arguments)
            arguments = self._inputs.changed(drawn, changes)
            refuse_masks(probe, modules.perturbed, arguments)
            output = calls.call_original(modules.perturbed, arguments)
        structure, original = self.comparable(probe, modules, arguments, output)
        del output
        names = self._updated[probe.case]
        every, groups = modules, [(structure, original)]
        if names:  # in the same runs as outputs, of which each takes long for a deep network
            every = modules.giving_buffers(names)
            groups.append((None, self._after(every, arguments, probe)[len(original) :]))
        [expected, *after], enough_memory = self._truth.expected_apart(
            groups, every, arguments, probe, closely, tf32=tf32
        )
        other = self._inputs.other(modules.perturbed, probe, changes, drawn) if enough_memory else None
        trivial = self._truth.passing_trivial(modules.perturbed, arguments, expected, other, enough_memory)
        updates = Updates(names, after[0]) if names else Updates()
        if names and not closely:
            self._refuse_hidden(modules, probe, updates)

        def again() -> tuple[Expected, Expected]:
            again, _ = self._truth.expected(structure, original, modules, arguments, probe, closely=True)
            return again, updates.expected

        large = bytes_of(tensors_of_call(modules.perturbed, arguments, original)) > SMALL
        small = partial(self._closely, probe)
        return PreparedProbe(
            probe,
            modules.perturbed,
            arguments,
            expected,
            trivial,
            updates,
            (again if large else small) if enough_memory else None,
            None if accelerator.is_gpu(self.device) else partial(self._in_tf32, probe),
            partial(self._without_shortcuts, probe) if planted(probe.stress) else None,
        )

    def comparable(
        self, probe: Probe, modules: Modules, arguments: dict[str, Any], output: Any
    ) -> tuple[Any, list[torch.Tensor]]:
        """Returns the structure and the leaves of an output, if candidates can be compared with it."""
        with self._originals.in_stage(RUNNING):
            refuse_incomparable(output, probe)
            structure, original = flatten(output)
            original = list(map(calls.compact, original))
            if probe.case not in self._updated:
                updated = updated_buffers(modules.perturbed, arguments, probe)
                refuse_random(modules.perturbed, arguments, original, self.policy, probe)
                self._updated[probe.case] = updated
            return structure, original

    def _after(self, modules: Modules, arguments: dict[str, Any], probe: Probe) -> list[torch.Tensor]:
        with original_errors(probe), self._originals.in_stage(RUNNING):
            return calls.run_original(modules.perturbed, arguments)[1]

    def _refuse_hidden(self, modules: Modules, probe: Probe, updates: Updates) -> None:
        """Refuses updates of buffers that nothing shows.

        Raises:
            OriginalError: they change so little that a kernel which does not update them would be right.
        """
        before = dict(modules.perturbed.named_buffers(remove_duplicate=False))
        for i, name in enumerate(updates.names):
            kept = numerics.compare(before[name], updates.expected, i, self.policy, self.tolerance)
            if probe.rule == "values" and kept.passed:
                raise OriginalError(
                    f"the original updates its buffer `{name}` so little, at {probe.describe()}, that a kernel "
                    "which does not would pass; give inputs that change it more"
                )
