"""Defines ``@triton_candidate``, which marks a module for replacement and describes how to build and call it.

Standard library only and cheap to import, because production code imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, TypeVar, Unpack, overload

from kernelllm_runtime.adopted import caller

MODULE = TypeVar("MODULE", bound=type)

OPTIONS_ATTRIBUTE = "__kernelllm_options__"
"""The attribute with a marked class's ``Options``; only the class's own ``__dict__`` counts, so subclasses are not marked."""

MARKS_ATTRIBUTE = "__kernelllm_marks__"
"""The attribute with the same by the name of the module that gave them: several may mark one class of a library."""

Inputs = Callable[..., Any]


class Way(TypedDict, total=False):
    """One way to build and call a class, of several: what it does not say is the marker's."""

    init: Any
    inputs: Inputs | Mapping[str, Inputs]
    dims: Mapping[str, tuple[int, int]] | None


@dataclass(frozen=True)
class Options:
    """The arguments of one ``triton_candidate``, normalised."""

    inputs: Mapping[str, Inputs] = field(default_factory=dict)
    init: Any = ()
    dtypes: tuple[str, ...] = ()
    dims: Mapping[str, tuple[int, int]] | None = field(default_factory=dict)
    """None: those that are found."""
    backward: bool = False
    training: bool = False
    tolerance: float | None = None
    min_speedup: float | None = None
    nonfinite: bool = True
    unread: tuple[str, ...] = ()
    kernel: str | None = None
    cases: Mapping[str, Options] = field(default_factory=dict)
    """Several ways to build the class, each with everything above; empty where there is one."""
    line: int = 0
    """Where the marker is in its file."""

    @property
    def ways(self) -> Mapping[str, Options]:
        """Every way to build the class by its name, which is empty where there is one."""
        return self.cases or {"": self}


class _Given(TypedDict, total=False):
    inputs: Inputs | Mapping[str, Inputs] | None
    init: Any
    dtypes: Sequence[str]
    dims: Mapping[str, tuple[int, int]] | None
    backward: bool
    training: bool
    tolerance: float | None
    min_speedup: float | None
    nonfinite: bool
    unread: Sequence[str]
    kernel: str | None
    cases: Mapping[str, Way] | None


@overload
def triton_candidate(cls: MODULE, /, **options: Unpack[_Given]) -> MODULE: ...
@overload
def triton_candidate(**options: Unpack[_Given]) -> Callable[[MODULE], MODULE]: ...


def triton_candidate(
    cls: MODULE | None = None,
    /,
    *,
    inputs: Inputs | Mapping[str, Inputs] | None = None,
    init: Any = (),
    dtypes: Sequence[str] = (),
    dims: Mapping[str, tuple[int, int]] | None = None,
    backward: bool = False,
    training: bool = False,
    tolerance: float | None = None,
    min_speedup: float | None = None,
    nonfinite: bool = True,
    unread: Sequence[str] = (),
    kernel: str | None = None,
    cases: Mapping[str, Way] | None = None,
) -> MODULE | Callable[[MODULE], MODULE]:
    """Marks an ``nn.Module`` class as a target; a decorator with or without arguments, or a call on a class.

    A second marker of a class in one file adds a way to build it.

    Args:
        cls: the class, when called directly: ``triton_candidate(LlamaRMSNorm, inputs=...)``.
        inputs: a callable that returns the arguments of ``forward``: a tensor, a tuple, a dict of keyword
            arguments, or ``(tuple, dict)``; or a mapping of case names to such callables. Keyword parameters
            that ``dims`` names receive sizes; their defaults are the sizes that are timed.
        init: the constructor's arguments: a tuple, a dict of keyword arguments, ``(tuple, dict)``, or a
            callable that returns one of these or a ready module.
        dtypes: the floating dtypes to judge (``"float32"``, ``"bfloat16"``, ``"float16"``): module and
            floating inputs are cast to each. If empty, the module stays as it is built.
        dims: the inclusive range of each named dimension that may vary, such as ``{"batch": (1, 64)}``. If it is left
            out, sizes vary from 1 to those that ``inputs`` gives: numbers that it takes as parameters, else the first axis,
            of inputs with three or more axes also the second, as far as ``forward`` runs at others. ``{}`` pins all sizes.
        backward: also judge gradients.
        training: judge the module in ``train()`` mode instead of ``eval()``.
        tolerance: the largest allowed relative error; replaces the derived one.
        min_speedup: the smallest speedup over the configured baseline that is suggested; replaces the configured one.
        nonfinite: set to False if inputs are always finite, so that outputs for NaN and infinities need not
            match the original's.
        unread: dotted names of whole numbers that ``forward`` does not read in the cases, such as the number of a layer.
            Kernels then run whatever they are. It is an error if the original does not run without them, and kernels are
            judged with other values of them.
        kernel: the dotted path of the adopted kernel module. The class then runs it inside the domain on
            which it was verified, and the original everywhere else.
        cases: several ways to build the class, by name: ``{"wide": {"init": (4096,), "inputs": make_wide}}``. Each may have
            ``init``, ``inputs`` and ``dims`` of its own. One kernel is for all of them.

    Returns:
        The class itself. Without ``kernel`` it behaves as before.

    Raises:
        TypeError: an argument has another form than above; the message names it.
    """
    if isinstance(dtypes, str):
        raise TypeError(f"triton_candidate: `dtypes` must be a sequence of names, e.g. ({dtypes!r},).")
    if isinstance(unread, str) or not all(isinstance(name, str) for name in unread):
        raise TypeError(f"triton_candidate: `unread` must be a sequence of names, not {unread!r}.")
    frame = caller(sys._getframe())
    shared: Way = {"init": init, "dims": dims}
    if inputs is not None:
        shared["inputs"] = inputs
    options = Options(
        **_way(shared),
        dtypes=tuple(str(d).removeprefix("torch.") for d in dtypes),
        backward=backward,
        training=training,
        tolerance=tolerance,
        min_speedup=min_speedup,
        nonfinite=nonfinite,
        unread=tuple(unread),
        kernel=kernel,
        line=frame.f_lineno,
    )
    ways = {name: replace(options, **_way({**shared, **way})) for name, way in _checked(cases).items()}
    options = replace(options, cases=ways)
    marking = frame.f_globals.get("__name__", "")

    def mark(target: MODULE) -> MODULE:
        if not isinstance(target, type):
            raise TypeError(f"triton_candidate marks classes, not {target!r}.")
        marks = vars(target).get(MARKS_ATTRIBUTE, {})
        together = _together(marks[marking], options, target) if marking in marks else options
        setattr(target, OPTIONS_ATTRIBUTE, together)
        setattr(target, MARKS_ATTRIBUTE, {**marks, marking: together})
        if kernel is not None:
            from kernelllm_runtime.install import adopt  # with torch, which marking alone does not need

            adopt(target, kernel)
        return target

    return mark if cls is None else mark(cls)


def _way(given: Way) -> dict[str, Any]:
    """Checks the arguments that each way to build a class may have, and returns them normalised."""
    inputs, dims = given.get("inputs"), given.get("dims")
    named: Mapping[str, Inputs]
    if inputs is None:
        named = {}
    elif callable(inputs):
        named = {"default": inputs}
    elif isinstance(inputs, Mapping) and inputs and all(callable(make) for make in inputs.values()):
        named = dict(inputs)
    else:
        raise TypeError(
            "triton_candidate: `inputs` must be a callable or a non-empty mapping of case name to callable."
        )
    for name, bounds in (dims or {}).items():
        if not (isinstance(bounds, tuple) and len(bounds) == 2 and 1 <= bounds[0] <= bounds[1]):
            raise TypeError(
                f"triton_candidate: dims[{name!r}] must be (low, high) with 1 <= low <= high, not {bounds!r}."
            )
    return {"inputs": named, "init": given.get("init", ()), "dims": None if dims is None else dict(dims)}


def _checked(cases: Mapping[str, Way] | None) -> Mapping[str, Way]:
    if cases is not None and not isinstance(cases, Mapping):
        raise TypeError(
            f"triton_candidate: `cases` must be a mapping of names to dicts of arguments, not {cases!r}."
        )
    for name, way in (cases or {}).items():
        if not (isinstance(name, str) and name and isinstance(way, Mapping)):
            raise TypeError("triton_candidate: `cases` must be a mapping of names to dicts of arguments.")
        if further := sorted(set(way) - set(Way.__annotations__)):
            raise TypeError(
                f"triton_candidate: cases[{name!r}] has {further[0]!r}; it takes {', '.join(Way.__annotations__)}."
            )
    return cases or {}


_OF_THE_TARGET = ("tolerance", "min_speedup", "nonfinite", "unread")
"""Arguments that count for a class, whichever way it is built."""


def _together(before: Options, added: Options, cls: type) -> Options:
    """Adds one marker's ways to build a class to those of an earlier one in its file; one of the same line replaces them."""
    if added.line in {way.line for way in before.ways.values()}:
        return added  # the file, or a cell of a notebook, runs again
    if other := next(
        (each for each in _OF_THE_TARGET if getattr(before, each) != getattr(added, each)), None
    ):
        raise TypeError(
            f"triton_candidate: the markers of {cls.__qualname__} differ in `{other}`; write it in both."
        )
    ways: dict[str, Options] = {}
    every = [(name, way) for each in (before, added) for name, way in each.ways.items()]
    for name, way in sorted(every, key=lambda pair: pair[1].line):
        taken = (f"{name}_{n}" if name else f"way_{n}" for n in range(2, len(every) + 2))
        ways[name if name not in ways else next(each for each in taken if each not in ways)] = way
    return replace(before, cases=ways, kernel=before.kernel or added.kernel)
