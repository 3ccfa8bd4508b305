"""Imports a target's class, builds it and calls it as its marker describes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core.parts import Parts, merged, parts_of
from kernelllm_judge.core.stages import BUILDING, DRAWING, IMPORTING, RUNNING, InStage, unwatched
from kernelllm_judge.core.targets import Case, Domain, Scalar, Target, TensorSpec
from kernelllm_judge.target import build
from kernelllm_judge.target.attributes import attributes, dtype_name
from kernelllm_judge.target.calls import Call, as_call, placed, seeded
from kernelllm_judge.target.cases import Described, Sizes, described, layout, used_dims
from kernelllm_judge.target.codes import codes_of, possible_codes
from kernelllm_judge.target.errors import TargetError, in_one_line
from kernelllm_judge.target.importing import marked_class
from kernelllm_judge.target.precision import precision_pins
from kernelllm_judge.target.reach import dims_within_32_bits, output_elements, without_data
from kernelllm_judge.target.state import recording, state
from kernelllm_judge.target.trial import dataclass_returned, try_original
from kernelllm_judge.target.unread import check_unread
from kernelllm_judge.target.varying import Maker, Varying, varying
from kernelllm_judge.target.work import trial_sizes
from kernelllm_runtime.leaves import leaves
from kernelllm_runtime.marker import Options
from kernelllm_runtime.parameters import keywords

__all__ = ["Call", "LiveTarget", "TargetError", "load_target"]

Makers = Maker | Mapping[str, Maker]


@dataclass(frozen=True)
class LiveTarget:
    """A target's class with everything needed to build and call it, as ``load_target`` returns it."""

    target: Target
    cls: type[nn.Module]
    options: Options
    """The marker's arguments; where it gives several ways to build the class, ``way`` has those of a case."""
    signature: inspect.Signature
    """The signature of the original ``forward``, without ``self``."""
    cases: tuple[Case, ...] = ()
    parts: Parts = field(default_factory=Parts, repr=False)
    """How kernel modules write the names of the module's parts."""
    _makers: Mapping[str, Maker] = field(default_factory=dict, repr=False)
    """The callable that makes the inputs of each case, by the case's name."""
    _ways: Mapping[str, Options] = field(default_factory=dict, repr=False)
    """How the module of each case is built, by the case's name."""
    _in_stage: InStage = field(default=unwatched, repr=False)

    @property
    def unread(self) -> tuple[str, ...]:
        """The attributes that ``forward`` does not read, as the marker says, by dotted name; whole numbers."""
        return self.options.unread

    @property
    def notes(self) -> tuple[str, ...]:
        """What its owner should know: the dimensions that its inputs do not follow."""
        dims = [item for way in self.options.ways.values() for item in (way.dims or {}).items()]
        free = dict.fromkeys(name for name, (low, high) in dims if low < high)
        followed = {name for case in self.cases for name in case.domain.dims}
        return tuple(
            f"{self._where}: dims names {name!r}, but no tensor of inputs has that size on an axis, so kernels are "
            f"verified at its default only; use {name} in a shape, or take it out of dims."
            for name in free
            if name not in followed
        )

    def case(self, name: str) -> Case:
        """Returns the case with a name.

        Raises:
            KeyError: there is no such case.
        """
        return {case.name: case for case in self.cases}[name]

    def way(self, case: Case) -> Options:
        """Returns the marker's arguments for a case."""
        return self._ways[case.name]

    @property
    def sizes_are_named(self) -> bool:
        """Whether the marker names the sizes that vary; else they were found."""
        return all(way.dims is not None for way in self.options.ways.values())

    def init_arguments(self, case: Case) -> Call:
        """Returns fresh constructor arguments; no arguments if ``init`` returns a ready module.

        Raises:
            TargetError: ``init`` fails or has another form.
        """
        made = build.init_arguments(self.way(case).init, self._where)
        return made if isinstance(made, Call) else Call()

    def build(self, case: Case, device: str = "cpu") -> nn.Module:
        """Builds a module for a case, with the same values every time and the original ``forward`` at every depth.

        Raises:
            TargetError: the user's constructor fails.
        """
        way = self.way(case)
        module = build.finished(self._construct(way.init), case.dtype, device, way.training)
        return build.returning_fields(module) if case.domain.returns else module

    def inputs(
        self, case: Case, seed: int, sizes: Mapping[str, int] | None = None, device: str = "cpu"
    ) -> Call:
        """Makes fresh arguments of ``forward``: contiguous, on ``device``, floating ones in the case's dtype.

        Args:
            case: one of ``cases``.
            seed: the seed of PyTorch's generators while the user's callable runs.
            sizes: sizes of named dimensions that replace the case's own.
            device: the device on which the user's callable makes its tensors.

        Raises:
            TargetError: the user's callable fails.
            KeyError: ``sizes`` names a dimension that the case does not have.
        """
        for name in sizes or {}:
            case.sizes[name]
        call = self._make(self._makers[case.name], {**case.sizes, **(sizes or {})}, seed, device)
        return call.map(lambda value: placed(value, case.dtype, device))

    def bind(self, call: Call) -> dict[str, Any]:
        """Returns the passed arguments by parameter name of ``forward``, and what a tuple holds as ``x[0]``, ``x[1]``, …

        What goes into ``**kwargs`` has its own name.

        Raises:
            TargetError: they do not fit the signature, or go into ``*args``.
        """
        shown = f"forward{self.signature}"
        try:
            arguments = self.signature.bind(*call.args, **call.kwargs).arguments
        except TypeError as error:
            raise TargetError(f"{self._where}: its inputs do not fit {shown}: {error}.") from None
        for name in arguments:
            parameter = self.signature.parameters[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise TargetError(
                    f"{self._where}: its inputs go into {parameter} of {shown}; name the parameters."
                )
        further = arguments.pop(keywords(self.signature), {})
        named = {**arguments, **further}
        return dict(leaf for name, value in named.items() for leaf in leaves(name, value))

    @property
    def _where(self) -> str:
        return f"{self.target.path}: {self.target.name}"

    def _construct(self, init: Any) -> nn.Module:
        with self._in_stage(BUILDING):
            return build.construct(self.cls, init, self._where)

    def _make(self, make: Maker, sizes: Mapping[str, int], seed: int, device: str) -> Call:
        given = ", ".join(f"{name}={size}" for name, size in sizes.items())
        try:
            with self._in_stage(DRAWING), seeded(seed, device):
                made = make(**sizes)
        except (Exception, SystemExit) as error:
            text = f"{self._where}: its inputs callable fails when called with ({given}) on {device}"
            raise TargetError(f"{text}: {in_one_line(error)}.") from error
        call = as_call(made)
        if call is None:
            raise TargetError(
                f"{self._where}: its inputs callable returns a {type(made).__name__}; it must return a "
                "tensor, a tuple, a dict of keyword arguments, or (tuple, dict)."
            )
        if device != "meta" and any(
            getattr(v, "is_meta", False) for v in tree_leaves((call.args, call.kwargs))
        ):
            raise TargetError(
                f"{self._where}: its inputs callable returns tensors without data; make new ones each time."
            )
        return call


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
