"""The rules about outputs: they are right, whatever values inputs, weights and attributes have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.rules.rule import Rule, SupportedCase
from kernelllm_judge.run.call import ProbeRun
from kernelllm_judge.run.comparison import check_outputs
from kernelllm_judge.shared import leaves
from kernelllm_judge.truth import exhaust
from kernelllm_judge.truth.probes import Probe, elements, fit, rows
from kernelllm_judge.truth.stress import ALONE, MASKED, PLANTED, WHOLE_HALVES
from kernelllm_judge.truth.variations import NAMED, OTHERS_FOR_FIXED, OUT_OF_RANGE, REPEATED
from kernelllm_judge.truth.weights import ACROSS_ONE, NEGATIVE, SCALES, SIGNED, WITH_NAN


@dataclass(frozen=True)
class Types(Rule):
    """Outputs nest like the original's and have its exact types."""

    name = "types"
    says = "outputs nest like the original's, with its exact types, dtypes, shapes, strides and device"

    def check_run(self, run: ProbeRun) -> None:
        """Compares the worker's description of the outputs with the original's."""
        expected = run.prepared.expected
        required = {
            "structure": expected.structure,
            "leaves": [_described(leaf, run) for leaf in expected.original],
        }
        got = {"structure": run.reply.get("structure"), "leaves": run.reply.get("leaves")}
        broken = f"it returns {_outline(got)}, the original {_outline(required)}, at {run.where}"
        run.judging.findings.require(self.name, "output types and shapes", got == required, broken)


def _described(leaf: Any, run: ProbeRun) -> dict[str, Any]:
    described = leaves.describe(leaf)
    device = run.judging.allocator.device.type
    # Of a large output only the form is kept, without data.
    return {**described, "device": device} if described.get("device") == "meta" else described


def _outline(outputs: dict[str, Any]) -> str:
    """Returns outputs in words, as in ``(float32 [8, 4], int64 [8])``.

    What a worker reports may be anything.
    """
    flat = outputs["leaves"] if isinstance(outputs["leaves"], list) else []
    parts = [
        f"{x.get('dtype', x.get('type'))} {x.get('shape', '')} with strides {x.get('strides', '?')} "
        f"on {x.get('device', '?')}"
        + ("" if x.get("type") == "Tensor" else f" of type {str(x.get('type'))[:80]}")
        for x in flat
        if isinstance(x, dict)
    ]
    structure = outputs["structure"]
    kind = f"{structure[0]} " if isinstance(structure, list) and structure else ""
    return f"{kind}({', '.join(parts)})"[:600]


@dataclass(frozen=True)
class OutputRule(Rule):
    """Base class of rules that check the outputs of their own probes."""

    context = ""
    """Beginning of the reason for a rejection, where the probe's description is not enough."""

    def check_run(self, run: ProbeRun) -> None:
        """Compares the outputs if the probe belongs to this rule."""
        if run.prepared.probe.rule == self.name:
            check_outputs(run.judging, run.uploaded, run.prepared, self.name, self.context)


@dataclass(frozen=True)
class Values(OutputRule):
    """Outputs are right for fresh values in the same memory: no result of an earlier call is reused."""

    name = "values"
    says = "outputs are right for fresh values in the same memory, several times over"
    main = True

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe per seed at the main sizes. ``plans`` adds the first seed's itself."""
        return [
            supported.probe(self.name, supported.main, number) for number in range(1, supported.policy.seeds)
        ]


class KindsRule(OutputRule):
    """Base class of rules with one probe for each kind of inputs, weights or attributes."""

    def kinds(self, supported: SupportedCase) -> Iterable[str]:
        """Returns the kinds to try."""
        return ()

    def fields(self, supported: SupportedCase, kind: str) -> dict[str, Any]:
        """Returns the fields of a ``Probe`` that hold its kind."""
        return {"stress": kind}

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe for each kind."""
        sizes = stress_sizes(supported)
        for number, kind in enumerate(self.kinds(supported)):
            yield supported.probe(self.name, sizes, self.seed + number, **self.fields(supported, kind))


@dataclass(frozen=True)
class Stress(KindsRule):
    """Outputs are right for numerically difficult inputs."""

    name = "stress"
    says = (
        "outputs are right for all 65,536 values of 16-bit inputs, and a million of wider ones, where each depends on one element; "
        "elsewhere for scaled, shifted, negative, zero, sparse, equal, extreme and masked inputs"
    )

    mixed: tuple[str, ...] = (
        *("×0.0001", "×10000", "shifted", "negative", WHOLE_HALVES, "mixed-row", "low-row", MASKED),
    )
    """Kinds of stress (``truth.stress.TRANSFORMS``) where outputs depend on several elements."""

    def kinds(self, supported: SupportedCase) -> Iterable[str]:
        """Returns the kinds of stress."""
        return self.mixed

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe for each kind, and those that run all values; ``exhaust.Exhaustion`` says which are asked."""
        yield from super().probes(supported)
        most = exhaust.WIDE if on_gpu(supported) else supported.limits.elements
        every = exhaust.asked(supported.case.domain, supported.ranges, most, supported.nonfinite)
        for number, (sizes, kind) in enumerate(every):
            yield supported.probe(self.name, sizes, self.seed + 512 + number, stress=kind)


def on_gpu(supported: SupportedCase) -> bool:
    """Whether a case is judged on a GPU, not in Triton's interpreter."""
    return supported.limits.elements > supported.policy.cpu_elements


def stress_sizes(supported: SupportedCase) -> dict[str, int]:
    """Returns the sizes of stressed inputs."""
    policy, domain = supported.policy, supported.case.domain
    most = policy.gpu_stress_elements if on_gpu(supported) else policy.cpu_stress_elements
    small = fit(supported.case, supported.ranges, most)
    # A dimension of size 1 hides errors along it, and rows of different kinds need several rows.
    sizes = {k: max(v, min(supported.main[k], 2)) for k, v in small.items()}
    if rows(domain, sizes) < policy.stress_rows or elements(domain, sizes) > supported.limits.elements:
        sizes = dict(supported.main)
    return sizes


@dataclass(frozen=True)
class FixedInputs(KindsRule):
    """A kernel reads inputs such as ``torch.ones`` and ``torch.arange``, which come with other values in use."""

    name = "fixed inputs"
    says = "outputs are right when inputs that are the same at every seed have other values"

    def kinds(self, supported: SupportedCase) -> Iterable[str]:
        """Returns one kind: other values for all such inputs."""
        return (OTHERS_FOR_FIXED,)


@dataclass(frozen=True)
class IntegerInputs(KindsRule):
    """Outputs are right for repeated, negative and very large integers, and for rows that are all true or false."""

    name = "integer inputs"
    says = (
        "outputs are right for repeated, negative and large integers, for those that the module names, for the greatest index, "
        "and for all-true and all-false rows"
    )

    def kinds(self, supported: SupportedCase) -> Iterable[str]:
        """Returns values in the inputs' own range, some beyond it, and numbers that mean something."""
        specs = supported.case.domain.inputs.values()
        dtypes = {spec.dtype for spec in specs if isinstance(spec, TensorSpec)}
        if any("int" in dtype for dtype in dtypes):
            return (REPEATED, OUT_OF_RANGE, NAMED)
        return (REPEATED,) if any(not dtype.startswith(("float", "bfloat")) for dtype in dtypes) else ()


@dataclass(frozen=True)
class Weights(KindsRule):
    """Outputs are right for weights that training may reach, however the module initialises them."""

    name = "weights"
    says = "outputs are right for negative, zero, small and large weights, and NaN in a weight shows where it does in the original"

    def kinds(self, supported: SupportedCase) -> Iterable[str]:
        """Returns the kinds of weights."""
        return (SIGNED, *SCALES, *((WITH_NAN,) if supported.nonfinite else ()))

    def fields(self, supported: SupportedCase, kind: str) -> dict[str, Any]:
        """The kind is that of the weights."""
        return {"state": kind}


@dataclass(frozen=True)
class Attributes(KindsRule):
    """Outputs are right when the float attributes that ``SUPPORTS`` leaves open have other values."""

    name = "attributes"
    says = "outputs are right with other values of the attributes that SUPPORTS leaves open"

    def kinds(self, supported: SupportedCase) -> Iterable[str]:
        """Returns the kinds of values, if there are open attributes."""
        return (ACROSS_ONE, NEGATIVE) if supported.open_attributes else ()

    def fields(self, supported: SupportedCase, kind: str) -> dict[str, Any]:
        """All open attributes get such values."""
        return {"perturbed": supported.open_attributes, "values": kind}


MOST_ALONE = 6
"""Inputs that get NaN and infinities by themselves."""


@dataclass(frozen=True)
class Nonfinite(KindsRule):
    """NaN and infinities come out as in the original, unless the target is marked ``nonfinite=False``."""

    name = "nonfinite"
    says = "NaN and infinities in the inputs come out where the original has them"

    def kinds(self, supported: SupportedCase) -> Iterable[str]:
        """Returns the planted values (``truth.stress.PLANTED``); those for which there is no row are planted apart.

        Several inputs get them together, and each of some by itself.
        """
        if not supported.nonfinite:
            return ()
        together, apart = PLANTED
        few = rows(supported.case.domain, stress_sizes(supported)) < len(PLANTED[together])
        inputs = supported.case.domain.inputs.items()
        floats = [name for name, spec in inputs if isinstance(spec, TensorSpec) and "float" in spec.dtype]
        alone = (
            [together + ALONE.format(name=name) for name in floats[:MOST_ALONE]] if len(floats) > 1 else []
        )
        return (together, *((apart,) if few else ()), *alone)
