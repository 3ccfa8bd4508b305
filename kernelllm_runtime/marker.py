"""Defines ``@triton_candidate``, which marks a module for replacement and describes how to build and call it.

Standard library only and cheap to import, because production code imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar, Unpack, overload

from kernelllm_runtime.adopted import caller

MODULE = TypeVar("MODULE", bound=type)

OPTIONS_ATTRIBUTE = "__kernelllm_options__"
"""The attribute with a marked class's ``Options``; only the class's own ``__dict__`` counts, so subclasses are not marked."""

MARKS_ATTRIBUTE = "__kernelllm_marks__"
"""The attribute with its ``Options`` by the name of the module that gave them: several may mark one class of a library."""

Inputs = Callable[..., Any]


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
) -> MODULE | Callable[[MODULE], MODULE]:
    """Marks an ``nn.Module`` class as a target; a decorator with or without arguments, or a call on a class.

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

    Returns:
        The class itself. Without ``kernel`` it behaves as before.

    Raises:
        TypeError: an argument has another form than above; the message names it.
    """
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
    if isinstance(dtypes, str):
        raise TypeError(f"triton_candidate: `dtypes` must be a sequence of names, e.g. ({dtypes!r},).")
    if isinstance(unread, str) or not all(isinstance(name, str) for name in unread):
        raise TypeError(f"triton_candidate: `unread` must be a sequence of names, not {unread!r}.")
    for name, bounds in (dims or {}).items():
        if not (isinstance(bounds, tuple) and len(bounds) == 2 and 1 <= bounds[0] <= bounds[1]):
            raise TypeError(
                f"triton_candidate: dims[{name!r}] must be (low, high) with 1 <= low <= high, not {bounds!r}."
            )
    options = Options(
        inputs=named,
        init=init,
        dtypes=tuple(str(d).removeprefix("torch.") for d in dtypes),
        dims=None if dims is None else dict(dims),
        backward=backward,
        training=training,
        tolerance=tolerance,
        min_speedup=min_speedup,
        nonfinite=nonfinite,
        unread=tuple(unread),
        kernel=kernel,
    )

    marking = caller(sys._getframe()).f_globals.get("__name__", "")

    def mark(target: MODULE) -> MODULE:
        if not isinstance(target, type):
            raise TypeError(f"triton_candidate marks classes, not {target!r}.")
        setattr(target, OPTIONS_ATTRIBUTE, options)
        setattr(target, MARKS_ATTRIBUTE, {**vars(target).get(MARKS_ATTRIBUTE, {}), marking: options})
        if kernel is not None:
            from kernelllm_runtime.install import adopt  # with torch, which marking alone does not need

            adopt(target, kernel)
        return target

    return mark if cls is None else mark(cls)
