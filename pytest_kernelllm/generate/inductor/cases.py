"""Compiles every case of a target with TorchInductor and writes the results as completions."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kernelllm_judge.core.domains import at_own_sizes
from kernelllm_judge.core.records import Case, Completion
from kernelllm_judge.render.errors import RenderError, unexpected
from kernelllm_judge.render.inductor import sections
from kernelllm_judge.render.inductor.sections import Section
from kernelllm_judge.render.inductor.translate import translate_inductor
from pytest_kernelllm.generate.inductor.case_tracer import CaseTracer
from pytest_kernelllm.generate.inductor.trace import TraceError
from pytest_kernelllm.generate.inductor.variants import TEMPLATES, WITHOUT_COPIES

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget
    from pytest_kernelllm.generate.inductor.device import Gpu
    from pytest_kernelllm.generate.inductor.variants import Variant


_KERNEL = re.compile(r"^def triton_\w+?_fused_(\w+)\(", re.MULTILINE)
_JIT = "@triton.jit"
_COPIES = re.compile(r"convolution|clone|_to_copy|(un)?squeeze|view|transpose|permute|_|\d")
"""What may be in the name of a kernel that only copies."""


class _LibraryCallsOnly(TraceError):
    """Raised if a variant leaves no kernels."""


def completions(
    live: LiveTarget, gpu: Gpu, variants: Sequence[Variant], indices: Sequence[int]
) -> Iterator[Completion]:
    """Yields the distinct completions of a target with the given indices, as far as there are so many.

    A target without any gets one with empty text and the reason as its note. So does a target on which the
    generator itself fails, so that the other targets get theirs.
    """
    started = time.monotonic()
    seen: list[str] = []
    why = why_special = ""
    fruitless: set[tuple[bool, tuple[str, ...], str]] = set()
    try:
        tracers = [_tracer(live, case, gpu) for case in live.cases]
        for variant in variants:
            if len(seen) > max(indices):
                return
            kind = ("max_autotune_gemm" in variant.config, variant.forms, variant.only)
            if kind in fruitless or not any(tracer.has(variant.only) for tracer in tracers):
                continue
            try:
                completion = _completion(tracers, variant, len(seen))
                if variant.needs not in completion.text:
                    continue
                # Variants with the same kernels count once, so the rendered texts are compared.
                body = translate_inductor(completion.text, live).body
            except (TraceError, RenderError) as error:
                if variant.only:
                    why_special = why_special or str(error)
                else:
                    why = why or str(error)
                if isinstance(error, _LibraryCallsOnly):  # so would the other variants of this kind
                    fruitless.add(kind)
                continue
            if body in seen:
                continue
            seen.append(body)
            if completion.index in indices:
                yield dataclasses.replace(completion, seconds=round(time.monotonic() - started, 3))
                started = time.monotonic()  # whoever takes them may be slow
    except TraceError as error:
        why = str(error)
    except Exception as error:
        why = unexpected("The inductor generator", "target", error)
    why = why or why_special
    if why and not seen:
        yield Completion("inductor", max(len(seen), min(indices)), "", "inductor", note=why.rstrip("."))


def _tracer(live: LiveTarget, case: Case, gpu: Gpu) -> CaseTracer:
    try:
        return CaseTracer(live, case, gpu)
    except TraceError:
        if not case.domain.dims:
            raise
        return CaseTracer(live, at_own_sizes(case), gpu)


def _completion(tracers: Sequence[CaseTracer], variant: Variant, index: int) -> Completion:
    text = sections.write([_section(tracer, variant) for tracer in tracers])
    if _JIT not in text or all(_only_copies(tracer, variant) for tracer in tracers):
        raise _LibraryCallsOnly(_without_kernels(text))
    return Completion("inductor", index, text, "inductor", note=variant.note)


def _section(tracer: CaseTracer, variant: Variant) -> Section:
    """Compiles a case in a variant, or with all its products as kernels where the variant would leave it none."""
    section = tracer.section(variant)
    if variant.blocks is not None and _JIT not in section.source:
        return tracer.section(TEMPLATES)
    return section


def _only_copies(tracer: CaseTracer, variant: Variant) -> bool:
    """Whether all that a case's kernels do is to copy to the layout that a convolution of cuDNN prefers, and back.

    Whatever is gained by that, the library gains by itself.
    """
    depthwise = "depthwise convolutions"
    if not tracer.has("convolutions") or (depthwise in variant.forms and tracer.has(depthwise)):
        return False
    source = tracer.section(variant).source
    if "@triton_heuristics.template(" in source or any(map(_computes, _KERNEL.findall(source))):
        return False
    return _JIT not in tracer.section(WITHOUT_COPIES).source


def _computes(name: str) -> bool:
    """Whether the name of a kernel, which lists the operations in it, has more than convolutions and copies."""
    return bool(_COPIES.sub("", name))


def _without_kernels(text: str) -> str:
    """Says why a text has no kernels."""
    calls = re.findall(r"(?:extern_kernels|torch\.ops)\.([\w.]+)\(", text)
    named = sorted({re.sub(r"^kernelllm\.(attention).*|\.default$", r"\1", name) for name in calls})
    if not named:
        return "it computes nothing: what it returns are views of its inputs and weights"
    return f"nothing but library calls is left after fusion ({', '.join(named)})"
