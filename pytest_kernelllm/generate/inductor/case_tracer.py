"""Traces one case of a target, and has it compiled in several variants."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.domains import at_own_sizes
from kernelllm_judge.core.records import Case, TensorSpec
from kernelllm_judge.render.inductor.sections import Backward, Section
from kernelllm_runtime.leaves import KIND
from pytest_kernelllm.generate.inductor.both_ways import BothWays, lower_both
from pytest_kernelllm.generate.inductor.fake import fake_call, traceable_module
from pytest_kernelllm.generate.inductor.forms.form import Traced
from pytest_kernelllm.generate.inductor.forms.products import blocks
from pytest_kernelllm.generate.inductor.forms.registry import FORMS
from pytest_kernelllm.generate.inductor.joint import Joint, export_joint
from pytest_kernelllm.generate.inductor.lowering import Lowered, lower
from pytest_kernelllm.generate.inductor.places import located
from pytest_kernelllm.generate.inductor.scalars import NamedScalars, free_scalars
from pytest_kernelllm.generate.inductor.trace import Exported, TraceError, export

if TYPE_CHECKING:
    from kernelllm_judge.target.live import Call, LiveTarget
    from pytest_kernelllm.generate.inductor.device import Gpu
    from pytest_kernelllm.generate.inductor.variants import Variant


class CaseTracer:
    """Exports one case of a target once and compiles it in several variants."""

    def __init__(self, live: LiveTarget, case: Case, gpu: Gpu) -> None:
        """Exports the case, with dynamic named dimensions."""
        self.live = live
        self.gpu = gpu
        self.module = traceable_module(live, case)
        self.case = case
        self.exports: dict[str, Exported | Joint] = {}
        self.sources: dict[str, tuple[Lowered | BothWays, NamedScalars]] = {}
        self.for_some_sizes: set[str] = set()
        """The programs, as in ``sources``, that cannot be compiled for every size."""
        self.call = fake_call(live, case, _tracing_sizes(case))
        self.dynamic = _dynamic_shapes(live, case, self.call) if case.domain.dims else None
        self._export("")

    def has(self, what: str) -> bool:
        """Whether the case computes what a special form is for; True for no form."""
        traced = Traced(self.exports[""].graph.graph, self.case.domain, self.gpu)
        return not what or FORMS[what].matches(traced)

    def section(self, variant: Variant) -> Section:
        """Compiles the case in one variant."""
        if _program(variant) in self.for_some_sizes:
            return self._at_own_sizes.section(variant)
        try:
            lowered, free = self._source(variant)
        except TraceError:
            if self.dynamic is None:
                raise
            self.for_some_sizes.add(_program(variant))
            return self._at_own_sizes.section(variant)
        source, scalars = free.source, free.scalars
        for name in variant.forms:
            source = FORMS[name].finishes(source, self.case.domain, variant)
        pinned = {k: v for k, v in self.case.domain.attributes.items() if f"self.{k}" not in scalars.values()}
        case = dataclasses.replace(self.case, domain=dataclasses.replace(self.case.domain, attributes=pinned))
        exported = self.exports[""]
        if isinstance(lowered, BothWays):
            second = _launches(lowered.backward, variant)
            backward = Backward(
                lowered.saved, lowered.incoming, lowered.gradients, lowered.recomputed, second
            )
            launches = _launches(lowered.forward, variant)
        else:
            backward, launches = None, _launches(lowered, variant)
        return Section(case, exported.arguments, exported.output, scalars, launches, backward, source)

    def _source(self, variant: Variant) -> tuple[Lowered | BothWays, NamedScalars]:
        key = _program(variant)
        if key not in self.sources:
            lowered = self._lower(self.exports[""], variant)
            free = free_scalars(
                lowered.source,
                self._floats(),
                lambda values: self._lower(self._changed(values), variant).source,
            )
            self.sources[key] = lowered, free
        return self.sources[key]

    def _lower(self, exported: Exported | Joint, variant: Variant) -> Lowered | BothWays:
        if isinstance(exported, Joint):
            return lower_both(exported, self.gpu, variant, self._symbols(exported))
        return lower(exported, self.gpu, variant)

    def _symbols(self, joint: Joint) -> dict[str, str]:
        """Returns the name of each named dimension by its symbol in the graph."""
        specs = self.case.domain.inputs
        values = [node.meta["val"] for node in joint.graph.graph.find_nodes(op="placeholder")]
        return {
            str(size): name
            for argument, value in zip(joint.arguments, values, strict=False)
            if isinstance(spec := specs.get(argument), TensorSpec)
            for name, size in zip(spec.shape, value.shape, strict=True)
            if isinstance(name, str) and not isinstance(size, int)
        }

    def _floats(self) -> dict[str, float]:
        """Returns the float attributes that a kernel module can read."""
        expression = self.live.parts.expression
        attributes = self.case.domain.attributes.items()
        floats = {k: v for k, v in attributes if isinstance(v, float) and math.isfinite(v)}
        return {k: v for k, v in floats.items() if expression(k) is not None}

    @cached_property
    def _at_own_sizes(self) -> CaseTracer:
        """The tracer for what cannot be compiled for every size."""
        return CaseTracer(self.live, at_own_sizes(self.case), self.gpu)

    def _export(self, key: str) -> Exported | Joint:
        if key not in self.exports:
            names = list(self.live.signature.parameters)
            trace = export_joint if self.case.domain.grad else export
            with located(self.module):
                self.exports[key] = trace(self.module, names, self.call.args, self.call.kwargs, self.dynamic)
        return self.exports[key]

    def _changed(self, values: Mapping[str, float]) -> Exported | Joint:
        """Exports the same case with other values of some attributes, by dotted name."""
        key = repr(sorted(values.items()))
        if key in self.exports:
            return self.exports[key]
        with contextlib.ExitStack() as stack:
            for path, value in values.items():
                owner_path, _, attribute = path.rpartition(".")
                try:
                    owner = self.module.get_submodule(owner_path)
                    before = getattr(owner, attribute)
                    setattr(owner, attribute, value)
                except (AttributeError, TypeError) as error:  # read-only, or of an object that is no module
                    raise TraceError(f"`{path}` cannot be changed") from error
                stack.callback(setattr, owner, attribute, before)
            return self._export(key)


def _program(variant: Variant) -> str:
    """Names what Inductor writes for a variant; those that differ in their blocks only share it."""
    same = dataclasses.replace(variant, note="", only="", needs="", choice=0, launch={})
    return repr(dataclasses.replace(same, config=dict(sorted(variant.config.items()))))


def _launches(lowered: Lowered, variant: Variant) -> dict[str, dict[str, int]]:
    """Returns the configuration that a variant gives each kernel, by its name."""
    chosen = {
        name: options[min(variant.choice, len(options) - 1)]
        for name, options in lowered.configurations.items()
        if options
    }
    measured = {name for name, shape in blocks(lowered.source).items() if shape == variant.blocks}
    return {
        name: {**launch, **(variant.launch if name in measured else {})} for name, launch in chosen.items()
    }


def _tracing_sizes(case: Case) -> dict[str, int]:
    """Returns the case's own sizes, but not 0 or 1, which torch treats as constants."""
    return {
        name: max(case.sizes.get(name, low), min(2, high)) for name, (low, high) in case.domain.dims.items()
    }


def _dynamic_shapes(live: LiveTarget, case: Case, call: Call) -> dict[str, Any]:
    """Returns the dynamic dimensions of each passed argument, for ``torch.export``."""
    from torch.export import Dim

    dims = {
        name: Dim(name, min=low, max=high) for name, (low, high) in case.domain.dims.items() if low < high
    }
    result: dict[str, Any] = {}  # by leaf
    for name, value in live.bind(call).items():
        spec = case.domain.inputs.get(name)
        if isinstance(spec, TensorSpec):
            result[name] = {i: dims[s] for i, s in enumerate(spec.shape) if isinstance(s, str) and s in dims}
        else:
            result[name] = value if name.endswith(KIND) else None
    return nested(result)
