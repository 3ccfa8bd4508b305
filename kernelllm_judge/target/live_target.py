"""A target's class with what is needed to build and to call it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core.parts import Parts
from kernelllm_judge.core.stages import BUILDING, DRAWING, InStage, unwatched
from kernelllm_judge.core.targets import Case, Target
from kernelllm_judge.target import build
from kernelllm_judge.target.calls import Call, as_call, placed, seeded
from kernelllm_judge.target.errors import TargetError, in_one_line
from kernelllm_judge.target.varying import Maker
from kernelllm_runtime.leaves import leaves
from kernelllm_runtime.marker import Options
from kernelllm_runtime.parameters import keywords


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
        """Returns the passed arguments by parameter name of ``forward``, and what a tuple or list holds as ``x[0]``, ``x[1]``, …

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
