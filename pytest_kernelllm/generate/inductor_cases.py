"""Every case of one target through TorchInductor, put together to completions."""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_kernelllm.generate.inductor_scalars import free_scalars
from pytest_kernelllm.generate.inductor_trace import Trace, TraceError, trace
from pytest_kernelllm.generate.render import RenderError, sections
from pytest_kernelllm.generate.render.dialect import translate
from pytest_kernelllm.generate.render.sections import Section
from pytest_kernelllm.records import Case, Completion, Domain, TensorSpec

if TYPE_CHECKING:
    from pytest_kernelllm.discover.live import Call, LiveTarget
    from pytest_kernelllm.generate.inductor import Variant


def completions(
    live: LiveTarget, variants: Sequence[Variant], first: int, samples: int
) -> Iterator[Completion]:
    """Distinct completions of a target, from index ``first`` on.

    A target that Inductor can do nothing for gets one with empty text and the reason as its note.
    """
    if live.options.backward:
        yield _nothing("gradients are wanted, and this generator writes forward passes only")
        return
    seen: set[str] = set()
    for variant in variants:
        if len(seen) >= samples:
            return
        started = time.monotonic()
        try:
            made = [_section(live, case, variant) for case in live.cases]
        except TraceError as error:
            if not seen:
                yield _nothing(str(error))
            return
        text = sections.write(made)
        if "@triton.jit" not in text:
            yield _nothing("only matrix multiplications are left after fusion; the vendor library does those already")
            return
        completion = Completion("inductor", len(seen), text, "inductor", seconds=0.0, note=variant.note)
        # Variants that come to the same kernel count once, so the rendered text is what is compared.
        try:
            body = translate(text, live, completion).body
        except RenderError:
            body = text
        if body in seen:
            continue
        seen.add(body)
        if completion.index >= first:
            yield dataclasses.replace(completion, seconds=round(time.monotonic() - started, 3))


def _nothing(note: str) -> Completion:
    return Completion("inductor", 0, "", "inductor", note=note)


def _section(live: LiveTarget, case: Case, variant: Variant) -> Section:
    """One case, with its named dimensions left open if Inductor can; otherwise fixed at the case's sizes."""
    module = live.build(case)
    parameters = list(live.signature.parameters)
    if case.domain.dims:
        call = live.inputs(case, 0, _tracing_sizes(case))
        dynamic = _dynamic_shapes(live, case, call)
        try:
            taken = trace(module, parameters, call.args, call.kwargs, dynamic, variant.config)
        except TraceError:
            case = fixed(case)
        else:
            return _finished(case, taken, module, parameters, call, dynamic, variant)
    call = live.inputs(case, 0)
    taken = trace(module, parameters, call.args, call.kwargs, None, variant.config)
    return _finished(case, taken, module, parameters, call, None, variant)


def _finished(
    case: Case,
    taken: Trace,
    module: Any,
    parameters: Sequence[str],
    call: Call,
    dynamic: Mapping[str, Any] | None,
    variant: Variant,
) -> Section:
    free = free_scalars(
        taken,
        case.domain,
        module,
        lambda: trace(module, parameters, call.args, call.kwargs, dynamic, variant.config),
    )
    attributes = {k: v for k, v in case.domain.attributes.items() if f"self.{k}" not in free.scalars.values()}
    case = dataclasses.replace(case, domain=dataclasses.replace(case.domain, attributes=attributes))
    return Section(case, taken.arguments, taken.output, free.scalars, variant.tuning, free.source)


def _tracing_sizes(case: Case) -> dict[str, int]:
    """The case's own sizes, but never 0 or 1: torch would take these for constants."""
    return {name: max(case.sizes.get(name, low), min(2, high)) for name, (low, high) in case.domain.dims.items()}


def _dynamic_shapes(live: LiveTarget, case: Case, call: Call) -> dict[str, Any]:
    """What ``torch.export`` takes: for each argument that is passed, its open dimensions."""
    from torch.export import Dim

    dims = {name: Dim(name, min=low, max=high) for name, (low, high) in case.domain.dims.items() if low < high}
    result: dict[str, Any] = {}
    for name in live.bind(call):
        spec = case.domain.inputs.get(name)
        if isinstance(spec, TensorSpec):
            result[name] = {i: dims[s] for i, s in enumerate(spec.shape) if isinstance(s, str) and s in dims}
        else:
            result[name] = None
    return result


def fixed(case: Case) -> Case:
    """The same case with its named dimensions at the case's own sizes."""
    sizes = {name: case.sizes.get(name, low) for name, (low, _) in case.domain.dims.items()}
    inputs = {
        name: TensorSpec(s.dtype, tuple(sizes.get(n, n) if isinstance(n, str) else n for n in s.shape))
        if isinstance(s, TensorSpec)
        else s
        for name, s in case.domain.inputs.items()
    }
    domain = dataclasses.replace(case.domain, inputs=inputs, dims={})
    return dataclasses.replace(case, domain=domain)


_ = inspect, Domain
