"""Prepares the probes of one target: inputs, a module with perturbed weights, and reference outputs."""

from __future__ import annotations

import functools
import math
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import torch

from pytest_kernelllm.core.records import Case, TensorSpec
from pytest_kernelllm.core.stages import RUNNING, InStage, unwatched
from pytest_kernelllm.judge.memory import make_room
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.reference import calls, numerics, weights
from pytest_kernelllm.judge.reference.acceptance import Trial
from pytest_kernelllm.judge.reference.acceptance import Unasked as Unasked
from pytest_kernelllm.judge.reference.gradients import Gradients, expected_gradients
from pytest_kernelllm.judge.reference.numerics import Expected
from pytest_kernelllm.judge.reference.prepared import (
    Piece,
    PreparedProbe,
    Sliced,
    Updates,
    bytes_of,
    tensors_of_call,
)
from pytest_kernelllm.judge.reference.probes import Probe
from pytest_kernelllm.judge.reference.slices import Slicing, find_slicing
from pytest_kernelllm.judge.reference.stress import PLANTED, TRANSFORMS, WHOLE_HALVES
from pytest_kernelllm.judge.reference.trivial import passing_trivial_output
from pytest_kernelllm.judge.reference.unsupported import OriginalError as OriginalError
from pytest_kernelllm.judge.reference.unsupported import (
    original_errors,
    refuse_incomparable,
    refuse_random,
    shape_and_kind,
    updated_buffers,
)
from pytest_kernelllm.judge.reference.variations import OTHERS_FOR_FIXED, Change, allows_nonfinite, vary
from pytest_kernelllm.judge.shared.structure import flatten

P = ParamSpec("P")
R = TypeVar("R")

STRIPED = frozenset({"stress", "nonfinite"})
"""Rules whose probes change rows, so that one call can hold the rows of several."""

EQUAL = frozenset({"equal-row", "equal-value", "two-value", "mixed-row", "low-row"})
"""Kinds of stress that make inputs equal to each other."""

FEW = 16
"""Elements of an output whose errors may all be small by chance."""

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
class _Modules:
    """A target's module with one set of perturbed weights."""

    perturbed: torch.nn.Module
    exact: torch.nn.Module
    """The same in float64."""
    nearby: tuple[torch.nn.Module, ...]
    """In float64 with slightly perturbed weights: once up or down at random, once the other way."""


@dataclass(frozen=True)
class _SlicedCase:
    """How a case's calls at some sizes are cut."""

    slicing: Slicing
    structure: Any
    """How the leaves of the outputs nest."""
    forms: tuple[torch.Tensor, ...]
    """The leaves, without data."""


def _runs_original(method: Callable[P, R]) -> Callable[P, R]:
    """Makes a method of ``ReferenceOutputs`` a stage of its own, so that many runs are not taken for one slow one."""

    @functools.wraps(method)
    def staged(*args: P.args, **kwargs: P.kwargs) -> R:
        with cast(ReferenceOutputs, args[0])._in_stage(RUNNING):
            return method(*args, **kwargs)

    return staged


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
    ) -> None:
        """Prepares nothing yet.

        Args:
            subject: the target.
            device: where the original runs.
            policy: thresholds.
            tolerance: the marker's, or None.
            preparing: a lock to share with others, see ``prepare``.
            in_stage: gives the context for each run of the original.
        """
        self.subject = subject
        self.device = device
        self.policy = policy
        self.tolerance = tolerance
        self._keeping = threading.Lock()
        self._preparing = preparing or threading.Lock()
        self._in_stage = in_stage
        self._compiling = threading.Lock()
        self._kept: OrderedDict[Probe, PreparedProbe] = OrderedDict()
        self._built: dict[str, torch.nn.Module] = {}
        self._modules: OrderedDict[Any, _Modules] = OrderedDict()
        self._gradients: OrderedDict[Probe, Gradients] = OrderedDict()
        self._sliced: dict[tuple[str, tuple[tuple[str, int], ...]], _SlicedCase | None] = {}
        self._updated: dict[str, tuple[str, ...]] = {}
        self._fixed: dict[str, frozenset[str]] = {}
        self._on_cpu: dict[str, torch.nn.Module] = {}
        self._unasked: dict[Probe, str] = {}
        self._compiled: dict[str, Callable[..., Any] | None] = {}

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
            with original_errors(probe), self._in_stage(RUNNING):
                perturbations = list(self._perturbations(probe.seed))
                gradients = expected_gradients(
                    prepared.module,
                    prepared.arguments,
                    probe.seed,
                    self.policy,
                    perturbations,
                    self.tolerance,
                    probe.incoming,
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

    @_runs_original
    def _prepare(self, probe: Probe) -> PreparedProbe:
        case = self.subject.case(probe.case)
        with original_errors(probe):
            drawn = self._draw(case, probe, probe.seed)
            modules = self._with_weights(case, probe, drawn)
            sliced = self._sliced_case(probe, modules, drawn)
            if sliced is not None:
                return self._prepare_slices(probe, modules, drawn, sliced)
            changes = self._changes(case, probe, modules, drawn, lambda arguments: arguments)
            arguments = _changed(drawn, changes)
            output = calls.call_original(modules.perturbed, arguments)
        structure, original = self._comparable(probe, modules, arguments, output)
        expected, enough_memory = self._expected(structure, original, modules, arguments, probe)
        other = self._other(modules.perturbed, probe, changes, drawn) if enough_memory else None
        trivial = self._passing_trivial(modules.perturbed, arguments, expected, other, enough_memory)
        updates = self._updates(modules, arguments, probe)
        return PreparedProbe(probe, modules.perturbed, arguments, expected, trivial, updates)

    @_runs_original
    def _comparable(
        self, probe: Probe, modules: _Modules, arguments: dict[str, Any], output: Any
    ) -> tuple[Any, list[torch.Tensor]]:
        """Returns the structure and the leaves of an output, if candidates can be compared with it."""
        refuse_incomparable(output, probe)
        structure, original = flatten(output)
        if probe.case not in self._updated:
            updated = updated_buffers(modules.perturbed, arguments, probe)
            refuse_random(modules.perturbed, arguments, original, self.policy, probe)
            self._updated[probe.case] = updated
        return structure, original

    def _updates(self, modules: _Modules, arguments: dict[str, Any], probe: Probe) -> Updates:
        """Returns what the buffers that the original updates hold after the call.

        Raises:
            OriginalError: they change so little that nothing shows whether they are updated.
        """
        names = self._updated[probe.case]
        if not names:
            return Updates()
        after = _Modules(
            calls.Updating(modules.perturbed, names),
            calls.Updating(modules.exact, names),
            tuple(calls.Updating(module, names) for module in modules.nearby),
        )
        with original_errors(probe):
            structure, original = calls.run_original(after.perturbed, arguments)
        expected, _ = self._expected(structure, original, after, arguments, probe)
        before = dict(modules.perturbed.named_buffers(remove_duplicate=False))
        for i, name in enumerate(names):
            kept = numerics.compare(before[name], expected, i, self.policy, self.tolerance)
            if probe.rule == "values" and kept.passed:
                raise OriginalError(
                    f"the original updates its buffer `{name}` so little, at {probe.describe()}, that a kernel "
                    "which does not would pass; give inputs that change it more"
                )
        return Updates(names, expected)

    def _expected(
        self,
        structure: Any,
        original: list[torch.Tensor],
        modules: _Modules,
        arguments: dict[str, Any],
        probe: Probe,
    ) -> tuple[Expected, bool]:
        """Returns what is expected of a candidate, and whether there was enough memory to find all of it out."""
        exact, note = self._exact(modules, arguments, original)
        enough_memory = self._fits(modules.perturbed, arguments, original, runs=4)
        if not enough_memory:
            note += (
                "; there was too little memory to try small perturbations of the inputs and half precision"
            )
        nearby = self._nearby(modules, arguments, exact, probe.seed) if enough_memory else []
        if probe.stress == WHOLE_HALVES and exact and numerics.unrounded(original, exact):
            nearby = []  # a step then lies at the same place for every kernel
        note = note.removeprefix("; ")
        free = probe.rule == "stress"
        elements = sum(v.numel() for v in arguments.values() if isinstance(v, torch.Tensor))
        elsewhere = self._elsewhere(modules, arguments, original, probe) if exact and nearby else None
        expected = numerics.expect(
            structure,
            original,
            exact,
            nearby,
            self.policy,
            elements=elements,
            free=free,
            note=note,
            elsewhere=elsewhere,
        )
        return expected, enough_memory

    def _sliced_case(self, probe: Probe, modules: _Modules, drawn: dict[str, Any]) -> _SlicedCase | None:
        """Returns how large calls are cut; None for small ones, and where rows are not independent."""
        if bytes_of(tensors_of_call(modules.perturbed, drawn, ())) < self.policy.slice_bytes:
            return None
        key = probe.case, probe.sizes
        if key not in self._sliced:
            output = calls.call_original(modules.perturbed, drawn)
            refuse_incomparable(output, probe)
            structure, leaves = flatten(output)
            kept = not updated_buffers(modules.perturbed, drawn, probe)
            slicing = kept and find_slicing(
                drawn,
                leaves,
                lambda arguments: calls.run_original(modules.perturbed, arguments)[1],
                lambda arguments: calls.run_in_float64(modules.exact, arguments),
                self.policy.slice_elements,
            )
            forms = tuple(_form(leaf) for leaf in leaves)
            self._sliced[key] = _SlicedCase(slicing, structure, forms) if slicing else None
        return self._sliced[key]

    def _prepare_slices(
        self, probe: Probe, modules: _Modules, drawn: dict[str, Any], sliced: _SlicedCase
    ) -> PreparedProbe:
        """Prepares a large probe, whose expected outputs are computed slice by slice."""
        slicing = sliced.slicing
        first, second, *_ = slicing.slices()
        unchanged = slicing.cut(drawn, first)
        if probe.stripes:
            arguments, pieces = drawn, self._stripe(probe, modules, drawn, slicing)
        else:
            case = self.subject.case(probe.case)
            changes = self._changes(case, probe, modules, drawn, lambda some: slicing.cut(some, first))
            arguments = _changed(drawn, changes)
            pieces = tuple(Piece(rows) for rows in slicing.slices())

        def run(rows: slice) -> list[torch.Tensor]:
            # Neither copied nor seeded: the original changes nothing, and draws nothing that matters.
            with original_errors(probe), self._in_stage(RUNNING), torch.no_grad():
                return flatten(modules.perturbed(**slicing.cut(arguments, rows)))[1]

        def expect(rows: slice) -> Expected:
            some = slicing.cut(arguments, rows)
            expected, _ = self._expected(sliced.structure, run(rows), modules, some, probe)
            return replace(expected, start=rows.start)

        some = slicing.cut(arguments, first)
        self._comparable(probe, modules, some, calls.call_original(modules.perturbed, some))
        few_changes = probe.stress and probe.stress not in TRANSFORMS and probe.stress not in PLANTED
        others = unchanged if few_changes else slicing.cut(arguments, second)
        other = calls.run_original(modules.perturbed, others)[1]
        trivial = self._passing_trivial(modules.perturbed, some, expect(first), other, True)
        expected = Sliced(sliced.structure, sliced.forms, pieces, expect, run)
        return PreparedProbe(probe, modules.perturbed, arguments, expected, trivial)

    def _stripe(
        self, probe: Probe, modules: _Modules, drawn: dict[str, Any], slicing: Slicing
    ) -> tuple[Piece, ...]:
        """Changes inputs in place, each stripe of rows in another way, as far as the original accepts it."""
        pieces: list[Piece] = []
        for rows, kind in zip(slicing.stripes(len(probe.stripes)), probe.stripes, strict=True):
            some = slicing.cut(drawn, rows)
            few = slice(0, min(slicing.step, rows.stop - rows.start))
            case = self.subject.case(probe.case)
            trial = self._trial(case, modules.perturbed, slicing.cut(some, few), lambda _: modules.exact)

            def accepts(
                arguments: dict[str, Any],
                names: Collection[str],
                trial: Trial = trial,
                few: slice = few,
                nonfinite: bool = allows_nonfinite(kind),
            ) -> bool:
                return trial.accepts_inputs(slicing.cut(arguments, few), names, nonfinite)

            changes = vary(some, kind, probe.seed, (), accepts)
            for name, change in changes.items():
                some[name].copy_(change(some[name]))
            pieces += [Piece(each, kind if changes else "") for each in slicing.slices(rows)]
        return tuple(pieces)

    def merged(self, probes: Sequence[Probe]) -> list[Probe]:
        """Returns probes with those merged that can share a call, each in rows of its own.

        Call it when a probe of the case has been prepared: then it is known where rows are independent.
        """
        left: list[Probe] = []
        groups: defaultdict[Probe, list[Probe]] = defaultdict(list)
        for probe in probes:
            sliced = self._sliced.get((probe.case, probe.sizes))
            inputs = self.subject.case(probe.case).domain.inputs
            tensors = {name for name, value in inputs.items() if isinstance(value, TensorSpec)}
            if sliced and probe.rule in STRIPED and tensors == sliced.slicing.names:
                groups[replace(probe, stress="", seed=0)].append(probe)
            else:
                left.append(probe)
        for group in groups.values():
            sliced = self._sliced[group[0].case, group[0].sizes]
            assert sliced is not None
            for start in range(0, len(group), sliced.slicing.rows):
                some = group[start : start + sliced.slicing.rows]
                left.append(replace(some[0], stress="", stripes=tuple(probe.stress for probe in some)))
        return left

    def _with_weights(self, case: Case, probe: Probe, drawn: dict[str, Any]) -> _Modules:
        """Returns the module with the probe's weights; built once for successive probes that share them."""
        seed = probe.seed if probe.weights is None else probe.weights
        key = (case.name, seed, probe.perturbed, probe.values, probe.state)
        if key not in self._modules:
            module = calls.perturb(self._fresh(case), seed)
            pinned = case.domain.attributes
            calls.count_on(module, [name for name in pinned if f"value:{name}" not in pinned], seed)
            trial = self._trial(case, module, drawn, _exact_copy)

            def accepts(other: torch.nn.Module) -> bool:
                return trial.accepts(other, drawn, nonfinite=probe.state == weights.WITH_NAN)

            if probe.perturbed:
                weights.change_attributes(module, probe.perturbed, probe.values, accepts)
            if probe.state:
                weights.change_weights(module, probe.state, seed, accepts)
            nearby = (calls.copied(module, change) for change in self._perturbations(seed))
            made = _Modules(module, _exact_copy(module), tuple(nearby))
            self._modules[key] = made
            while len(self._modules) > 2:
                self._modules.popitem(last=False)
        return self._modules[key]

    def _fresh(self, case: Case) -> torch.nn.Module:
        """Returns a module of its own with initial weights, as a copy where copies work."""
        built = self._built.get(case.name)
        if built is None:
            built = self._built[case.name] = self.subject.build(case, device=self.device)
        if calls.holds_closures(built):
            return self.subject.build(case, device=self.device)
        return calls.copied(built, torch.clone)

    def _trial(
        self,
        case: Case,
        module: torch.nn.Module,
        drawn: dict[str, Any],
        exact: Callable[[torch.nn.Module], torch.nn.Module],
    ) -> Trial:
        def on_cpu() -> torch.nn.Module:
            if case.name not in self._on_cpu:
                self._on_cpu[case.name] = self.subject.build(case)
            return self._on_cpu[case.name]

        on_gpu = self.device.startswith("cuda")
        return Trial(module, exact, drawn, on_cpu if on_gpu else None, self._in_stage)

    def _changes(
        self,
        case: Case,
        probe: Probe,
        modules: _Modules,
        drawn: dict[str, Any],
        few: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> Mapping[str, Change]:
        """Returns the changes of the probe's inputs, by name. ``few`` returns those rows at which they are tried.

        Raises:
            Unasked: the original accepts none.
            ValueError: an input has the same values at every seed, and the original accepts no others.
        """
        if not probe.stress:
            return {}
        fixed = self._fixed_inputs(case, probe, drawn)
        trial = self._trial(case, modules.perturbed, few(drawn), lambda _: modules.exact)
        nonfinite = allows_nonfinite(probe.stress)
        changes = vary(
            drawn,
            probe.stress,
            probe.seed,
            fixed,
            lambda arguments, names: trial.accepts_inputs(few(arguments), names, nonfinite),
        )
        constant = sorted(fixed - set(changes)) if probe.stress == OTHERS_FOR_FIXED else []
        if constant:
            raise ValueError(
                f"its input `{constant[0]}` has the same values at every seed, and it accepts no others: "
                "draw it at random, or make it a plain value"
            )
        if not changes and probe.rule != "near-duplicate":
            nothing = probe.stress == OTHERS_FOR_FIXED or not any(
                isinstance(v, torch.Tensor) for v in drawn.values()
            )
            raise Unasked("" if nothing else "the original accepts no such inputs")
        return changes

    def _fixed_inputs(self, case: Case, probe: Probe, drawn: dict[str, Any]) -> frozenset[str]:
        """Returns the names of tensors that have the same values at every seed."""
        if case.name not in self._fixed:
            other = self._draw(case, probe, probe.seed + 1_000_003)
            self._fixed[case.name] = frozenset(
                name
                for name, value in drawn.items()
                if isinstance(value, torch.Tensor)
                and value.numel()
                and value.dtype == other[name].dtype
                and torch.equal(value, other[name])
            )
        return self._fixed[case.name]

    def _perturbations(self, seed: int) -> Iterator[calls.Change]:
        """Yields a perturbation by a few float32 eps, and its opposite."""
        step = self.policy.conditioning_eps * torch.finfo(torch.float32).eps
        for way in (step, -step):
            yield calls.perturbation(way, seed, torch.device(self.device))

    def _draw(self, case: Case, probe: Probe, seed: int) -> dict[str, Any]:
        return self.subject.bind(self.subject.inputs(case, seed, dict(probe.sizes), device=self.device))

    @_runs_original
    def _other(
        self,
        module: torch.nn.Module,
        probe: Probe,
        changes: Mapping[str, Change],
        drawn: dict[str, Any],
    ) -> list[torch.Tensor] | None:
        """Returns the outputs for other inputs, which must not pass for this probe's; None: they fail.

        For inputs that were changed in a few places or in their meaning, these are the unchanged ones.
        """
        if probe.stress in TRANSFORMS or probe.stress in PLANTED or not probe.stress:
            with original_errors(probe):
                drawn = self._draw(self.subject.case(probe.case), probe, probe.seed + 1_000_003)
            drawn = _changed(drawn, changes)
        try:
            return calls.run_original(module, drawn)[1]
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # what the original accepted for one draw, it may refuse for another
            if probe.stress:
                return None
            raise OriginalError(f"the original fails at {probe.describe()}: {error}") from error

    @_runs_original
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
                with self._in_stage(RUNNING):
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

    @_runs_original
    def _elsewhere(
        self, modules: _Modules, arguments: dict[str, Any], original: list[torch.Tensor], probe: Probe
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]] | None:
        """Returns the leaves for slightly perturbed inputs, as the original computes them and in float64."""
        few = any(leaf.numel() <= FEW for leaf in original)
        if not (few or EQUAL & {probe.stress, *probe.stripes}):
            return None
        change = next(self._perturbations(probe.seed))
        near = {k: change(v).to(v.dtype) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
        try:
            leaves = calls.run_original(modules.perturbed, near)[1]
            exact = calls.run_in_float64(modules.exact, near)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:  # user code may check its inputs
            return None
        return leaves, exact

    @_runs_original
    def _passing_trivial(
        self,
        module: torch.nn.Module,
        arguments: dict[str, Any],
        expected: Expected,
        other: list[torch.Tensor] | None,
        enough_memory: bool,
    ) -> str | None:
        """Returns the name of a trivial output that would pass, or None."""
        half = None
        # A user who sets a tolerance accepts such errors.
        if enough_memory and self.tolerance is None:
            half = calls.run_in_half(module, arguments)
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
        return runs * 8 * sum(t.numel() for t in tensors_of_call(module, arguments, original)) <= room


def _changed(drawn: dict[str, Any], changes: Mapping[str, Change]) -> dict[str, Any]:
    return {name: changes[name](value) if name in changes else value for name, value in drawn.items()}


def _exact_copy(module: torch.nn.Module) -> torch.nn.Module:
    return calls.copied(module, calls.to_float64)


def _form(leaf: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of the same shape, strides and dtype without data."""
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
