"""Imports a target's class as its marker describes it, and finds its cases."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch import nn

from kernelllm_judge.core.parts import merged, parts_of
from kernelllm_judge.core.stages import IMPORTING, RUNNING, InStage, unwatched
from kernelllm_judge.core.targets import Case, Domain, Scalar, Target, TensorSpec
from kernelllm_judge.target import build
from kernelllm_judge.target.attributes import attributes, dtype_name
from kernelllm_judge.target.calls import Call, placed
from kernelllm_judge.target.cases import Described, Sizes, described, layout, used_dims
from kernelllm_judge.target.codes import codes_of, possible_codes
from kernelllm_judge.target.errors import TargetError
from kernelllm_judge.target.importing import marked_class
from kernelllm_judge.target.live_target import LiveTarget
from kernelllm_judge.target.precision import precision_pins
from kernelllm_judge.target.reach import dims_within_32_bits, output_elements, without_data
from kernelllm_judge.target.state import recording, state
from kernelllm_judge.target.trial import dataclass_returned, try_original
from kernelllm_judge.target.unread import check_unread
from kernelllm_judge.target.varying import Maker, Varying, varying
from kernelllm_judge.target.work import trial_sizes
from kernelllm_runtime.marker import Options

__all__ = ["Call", "LiveTarget", "TargetError", "load_target"]

Makers = Maker | Mapping[str, Maker]


def load_target(
    root: Path,
    target: Target,
    inputs: Makers | None = None,
    in_stage: InStage = unwatched,
    dtypes: Sequence[str] = (),
) -> LiveTarget:
    """Imports a target's file, builds its module once and finds its cases.

    Args:
        root: the project root.
        target: the target as the scan found it.
        inputs: replaces the marker's ``inputs``.
        in_stage: gives the context for each stage of the user's code, here and later.
        dtypes: replace the marker's.

    Raises:
        TargetError: the target cannot be imported, built or called; the message says what to do.
    """
    root = root.absolute()
    file = (root / target.path).resolve()
    with in_stage(IMPORTING):
        cls, options = marked_class(target, file, root)
    changes: dict[str, Any] = {}
    if inputs is not None:
        changes["inputs"] = {"default": inputs} if callable(inputs) else dict(inputs)
    if dtypes:
        changes["dtypes"] = tuple(dtypes)
    ways = {name: replace(way, **changes) for name, way in options.cases.items()}
    return live_class(target, cls, replace(options, **changes, cases=ways), in_stage)


def live_class(
    target: Target, cls: type[nn.Module], options: Options, in_stage: InStage = unwatched
) -> LiveTarget:
    """Builds a class's module once and finds its cases.

    Args:
        target: names the class in messages.
        cls: the class.
        options: how to build and call it.
        in_stage: gives the context for each stage of the user's code, here and later.

    Raises:
        TargetError: it cannot be built or called; the message says what to do.
    """
    where = f"{target.path}: {target.name}"
    if torch.get_default_dtype() is not torch.float32:
        raise TargetError(
            f"{where}: torch's default dtype is {dtype_name(torch.get_default_dtype())}; kernels are verified and run "
            "only with float32, so do not set it when the file is imported."
        )
    parameters = list(inspect.signature(build.original_forward(cls)).parameters.values())
    live = LiveTarget(target, cls, options, inspect.Signature(parameters[1:]), _in_stage=in_stage)
    found: list[LiveTarget] = []
    for name, way in options.ways.items():
        of = f" in case {name}" if name else ""
        if not way.inputs:
            raise TargetError(
                f"{where} has no inputs{of}; write triton_candidate(inputs=make_inputs), a callable that returns "
                "forward's arguments."
            )
        _check_options(way, where)
        found.append(_with_cases(replace(live, options=way), f"{where}{of}", name))
    return _together(live, found, where)


def _together(live: LiveTarget, ways: Sequence[LiveTarget], where: str) -> LiveTarget:
    """Returns a target with the cases of all ways to build it."""
    if several := {each.domain.returns for way in ways for each in way.cases} - {
        ways[0].cases[0].domain.returns
    }:
        raise TargetError(
            f"{where}: forward returns a {several.pop() or 'plain structure'} in some cases only."
        )
    return replace(
        live,
        cases=tuple(case for way in ways for case in way.cases),
        parts=merged(way.parts for way in ways),
        _makers={name: make for way in ways for name, make in way._makers.items()},
        _ways={case.name: way.options for way in ways for case in way.cases},
    )


def _check_options(options: Options, where: str) -> None:
    for dtype in options.dtypes:
        if not (isinstance(found := getattr(torch, dtype, None), torch.dtype) and found.is_floating_point):
            raise TargetError(
                f"{where}: dtypes has {dtype!r}; write floating dtypes such as 'float32' or 'bfloat16'."
            )
    taken = {name for make in options.inputs.values() for name in inspect.signature(make).parameters}
    for name in options.dims or {}:
        if name not in taken:
            raise TargetError(
                f"{where}: dims names {name!r}, but no inputs callable has a parameter of that name."
            )


def _with_cases(live: LiveTarget, where: str, way: str) -> LiveTarget:
    """Adds a case for every inputs callable and dtype, and tries each callable once; ``way`` is in their names."""
    options = live.options
    module = live._construct(options.init)
    build.check_hooks(module, where)
    held = {dtype: attributes(module, dtype) for dtype in options.dtypes or (None,)}
    tried = "float32" if "float32" in held else next(iter(held))
    cases: list[Case] = []
    makers: dict[str, Maker] = {}
    for name, make in options.inputs.items():
        varied = _varying(live, make, tried)
        found = layout(_probe(live, varied.make), varied.sizes, varied.dims, where)
        for dtype in held:
            domain = Domain(
                inputs={argument: _cast(value, dtype) for argument, value in found.inputs.items()},
                attributes={name: v for name, v in held[dtype].items() if name not in options.unread},
                dims=found.dims,
                training=options.training,
                grad=options.backward,
            )
            named = (way, "" if way and name == "default" else name, dtype)
            cases.append(Case("-".join(filter(None, named)), dtype, domain, found.sizes))
            makers[cases[-1].name] = varied.make
    live = replace(live, cases=tuple(cases), parts=parts_of(module), _makers=makers)
    module = build.finished(module, tried, "cpu", options.training)
    ran: set[CodeType] = set()
    codes: frozenset[str] = frozenset()
    settings: dict[str, dict[str, str]] = {}
    shown: list[Any] = []
    for case in sorted(cases, key=lambda each: each.dtype != tried):
        module = build.finished(module, case.dtype, "cpu", options.training)
        with live._in_stage(RUNNING):
            sizes = trial_sizes(module, case)
            small = None if sizes is None else partial(live.inputs, case, 0, sizes)
            watched = partial(recording, ran)
            settings[case.name] = precision_pins(module, small, watched, grad=options.backward)
            if case.dtype == tried:
                if options.unread:
                    other = build.finished(live._construct(options.init), tried, "cpu", options.training)
                    call = None if sizes is None else live.inputs(case, 0, sizes)
                    check_unread(other, options.unread, case, call, where)
                if sizes is not None:
                    make = partial(live.inputs, case, 0)
                    shown.append(try_original(module, sizes, make, live.bind, watched, where))
                    if possible := possible_codes(module):
                        other = build.finished(live._construct(options.init), tried, "cpu", options.training)
                        codes |= codes_of(other, possible, make(sizes))
    # Frees its parameters before others are made; without data they are cast at once.
    meta = build.finished(module.to("meta"), tried, "meta", options.training)
    # Of another one: calling a module may change it.
    fresh = live._construct(options.init)
    pins = state(fresh.train(options.training), held[tried], ran, where)
    pins = {name: text for name, text in pins.items() if name.removeprefix("value:") not in codes}
    with live._in_stage(RUNNING):
        shown = shown or [without_data(meta, case, case.sizes) for case in live.cases]
        returns = dataclass_returned(shown, where)
        pinned = [_pinned(case, {**pins, **settings[case.name]}, returns) for case in live.cases]
        return replace(live, cases=tuple(_within_reach(meta, case) for case in pinned))


def _varying(live: LiveTarget, make: Maker, dtype: str | None) -> Varying:
    """Returns which sizes may vary: those that the marker names, or where it names none, those at which the original runs."""
    if (dims := live.options.dims) is not None:
        return Varying(make, used_dims(make, dims, live._where), dims)

    def shown(made: Maker, sizes: Sizes) -> Described:
        found = described(_probe(live, made)(sizes), live._where)
        return {name: _cast(value, dtype) for name, value in found.items()}

    def drawn(made: Maker, sizes: Sizes) -> Call:
        return live._make(made, sizes, 0, "cpu").map(lambda value: placed(value, dtype, "cpu"))

    # Another one than those that are kept: calling a module may change it.
    module = build.finished(live._construct(live.options.init), dtype, "cpu", live.options.training)
    with live._in_stage(RUNNING):
        return varying(make, shown, drawn, live.bind, module)


def _pinned(case: Case, pins: Mapping[str, str], returns: str) -> Case:
    domain = replace(case.domain, attributes={**case.domain.attributes, **pins}, returns=returns)
    return replace(case, domain=domain)


def _within_reach(module: nn.Module, case: Case) -> Case:
    return replace(
        case, dims_within_32_bits=dims_within_32_bits(case, partial(output_elements, module, case))
    )


def _probe(live: LiveTarget, make: Maker) -> Callable[[Sizes], dict[str, Any]]:
    def probe(sizes: Sizes) -> dict[str, Any]:
        try:
            # The meta device gives shapes without memory, but not every callable works without data.
            return live.bind(live._make(make, sizes, 0, "meta"))
        except TargetError:
            return live.bind(live._make(make, sizes, 0, "cpu"))

    return probe


def _cast(value: TensorSpec | Scalar, dtype: str | None) -> TensorSpec | Scalar:
    if dtype and isinstance(value, TensorSpec) and getattr(torch, value.dtype).is_floating_point:
        return replace(value, dtype=dtype)
    return value
