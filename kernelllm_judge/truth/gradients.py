"""Computes reference gradients, for targets marked ``backward=True``. Used in the judge's process only.

The request ``run`` names the gradients to compute like this::

    "grad": {"wrt": ["x", "self.weight"], "outputs": [strided, null], "buffers": [buffer, buffer]}

``wrt`` names inputs, and parameters with the prefix ``self.``, as in ``Gradients.names``. ``outputs`` has
for each output leaf the gradient that flows into it (a flat ``buffer`` with ``shape`` and ``strides``), or
null (``Gradients.into``). The worker makes the
named tensors require gradients, calls ``forward`` under ``torch.enable_grad()`` and
``torch.autograd.grad`` with ``allow_unused=True``, and copies the gradients to ``buffers``, zeros where
there is none; so does ``loop``. The judge compares the buffers with ``Gradients.expected``, leaf by leaf.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.arguments import nested
from kernelllm_judge.policy import Policy
from kernelllm_judge.shared.leaves import flatten
from kernelllm_judge.truth import numerics
from kernelllm_judge.truth.calls import Change, Float64Mode, copied, to_float64
from kernelllm_judge.truth.honest import Evaluation, Reordered, modes
from kernelllm_judge.truth.numerics import Expected
from kernelllm_judge.truth.prepared import form_of
from kernelllm_judge.truth.trivial import passing_trivial_output
from kernelllm_judge.truth.variations import WHOLE

SEED = 1 << 31
"""Added to a probe's seed, with which inputs are drawn: gradients that equal an input hide mistakes.

Of 32 bits, because generators ignore the others; the judge's own seeds lie below."""

PARAMETER = "self."
"""Prefix of the names of parameters, to tell them from inputs."""

Tensors = list[torch.Tensor]


class NoGradients(Exception):
    """The original has no gradients to compare with; the text says why."""


@dataclass(frozen=True)
class Gradients:
    """The reference gradients of one probe."""

    names: tuple[str, ...]
    """The floating inputs (``x``) and the parameters (``self.weight``) that outputs depend on."""
    into: tuple[torch.Tensor | None, ...]
    """For each output leaf the gradient that flows into it; None for leaves without gradient."""
    expected: Expected
    """One leaf for each name in ``names``."""
    trivial: str | None
    """Name of trivial gradients that would pass; then the gradients cannot tell right from wrong."""
    written: int
    """Bytes of the original's gradients in memory of their own: that of a residual is the one that flows in."""
    in_place: frozenset[str]
    """Inputs that the original writes to, though what they hold stays the same, as with ReLU of positive numbers."""

    @property
    def form(self) -> tuple[Any, ...]:
        """What is equal for probes whose backward passes may take turns in the same memory."""
        return self.names, [None if g is None else (g.shape, g.stride(), g.dtype) for g in self.into]


def expected_gradients(
    module: nn.Module,
    arguments: dict[str, Any],
    seed: int,
    policy: Policy,
    perturbations: Iterable[Change] = (),
    tolerance: float | None = None,
    incoming: str = "",
    further: Sequence[dict[str, Any]] = (),
) -> Gradients:
    """Computes the original's gradients for random gradients of its outputs, with their error bounds.

    Args:
        module: the original, with the probe's weights. Left unchanged.
        perturbations: functions from ``calls.perturbation``.
        incoming: what kind of gradients outputs get, a key of ``INCOMING``; empty: contiguous and of usual size.
        further: arguments with other last digits, at which honest errors are measured as well.

    Raises:
        NoGradients: autograd finds no dependence of an output on an input or parameter.
    """
    found = _originals(module, arguments, seed, incoming)
    names, into, original = found.names, found.into, found.gradients

    def in_float64(
        change: Change, flowing: Change | None = None, given: dict[str, Any] = arguments
    ) -> Tensors:
        with Float64Mode():
            leaves, sources, _ = _call(module, given, change)
            # Where what flows into the outputs is one number, the original's errors may cancel by chance.
            wide = [None if g is None else (flowing or change)(g) for g in into]
            float64_gradients = _differentiate(leaves, [sources[name] for name in names], wide)
        return [
            torch.zeros_like(o, dtype=torch.float64) if g is None else g
            for o, g in zip(original, float64_gradients, strict=True)
        ]

    exact = in_float64(to_float64)
    nearby = [in_float64(change) for change in perturbations]
    # An index that comes often adds many gradients to one element. In order, as by atomics, such a sum drifts by about
    # an eps of the terms' magnitudes.
    if any(isinstance(v, torch.Tensor) and v.dtype in WHOLE for v in arguments.values()):
        sizes = in_float64(to_float64, lambda gradient: to_float64(gradient).abs_())
        nearby.append(
            [
                g + min(torch.finfo(o.dtype).eps, torch.finfo(torch.float32).eps) * s.abs_()
                for o, g, s in zip(original, exact, sizes, strict=True)
            ]
        )
    elements = sum(v.numel() for v in arguments.values() if isinstance(v, torch.Tensor))

    def honest() -> Iterator[Evaluation]:
        for mode in modes(
            tf32=any(isinstance(v, torch.Tensor) and accelerator.is_gpu(v.device) for v in arguments.values())
        ):
            leaves = _otherwise(module, arguments, names, into, mode)
            if mode.used and leaves:
                yield Evaluation(leaves, None, mode.terms)
        for near in further:
            for order in (contextlib.nullcontext(), Reordered()):
                if leaves := _otherwise(module, near, names, into, order):
                    yield Evaluation(leaves, in_float64(to_float64, given=near))

    expected = numerics.expect(None, original, exact, nearby, policy, elements=elements, evaluations=honest())
    trivial = passing_trivial_output(expected, {}, None, None, policy, tolerance)
    return Gradients(tuple(names), tuple(into), expected, trivial, found.written, found.in_place)


def forms_of_gradients(module: nn.Module, arguments: dict[str, Any], seed: int) -> Gradients:
    """Returns what a backward pass is asked for, where nothing needs to be known of the gradients but their forms.

    Args and errors as for ``expected_gradients``.
    """
    found = _originals(module, arguments, seed, "")
    forms = Expected(None, tuple(map(form_of, found.gradients)), (), ())
    return Gradients(tuple(found.names), tuple(found.into), forms, None, found.written, found.in_place)


def both_passes(
    module: Callable[..., Any], arguments: dict[str, Any], gradients: Gradients
) -> Callable[[], Any]:
    """Returns a function that calls the original and its backward pass, as often as one likes.

    Args:
        module: the original, or what ``torch.compile`` made of it.
        gradients: those of outputs, and what is differentiated by.
    """
    given = {
        name: value.detach().requires_grad_() if name in gradients.names else value
        for name, value in arguments.items()
    }
    # What was compiled may be another copy of the original than the probe's, with parameters of its own.
    original: Any = getattr(module, "_orig_mod", module)
    parameters = dict(original.named_parameters())
    sources = [
        parameters[name.removeprefix(PARAMETER)] if name.startswith(PARAMETER) else given[name]
        for name in gradients.names
    ]

    def passed(name: str, value: Any) -> Any:
        """What a module before this one would give it: leaves must not be written to, and have no operation to count from."""
        if name in gradients.in_place:
            return value.clone()
        return value.view_as(value) if name in gradients.names else value

    def passes() -> Any:
        with torch.enable_grad():
            outputs = module(**nested({name: passed(name, value) for name, value in given.items()}))
        return outputs, _differentiate(flatten(outputs)[1], sources, list(gradients.into))

    return passes


@dataclass(frozen=True)
class _Originals:
    """The gradients that the original itself computes; for the fields see ``Gradients``."""

    names: list[str]
    into: list[torch.Tensor | None]
    gradients: Tensors
    written: int
    in_place: frozenset[str]


def _originals(module: nn.Module, arguments: dict[str, Any], seed: int, incoming: str) -> _Originals:
    leaves, sources, passed = _call(module, arguments, None)
    into = _output_gradients(leaves, seed, incoming)
    found = _differentiate(leaves, list(sources.values()), into)
    names = [name for name, gradient in zip(sources, found, strict=True) if gradient is not None]
    if not names:
        raise NoGradients(
            "no output of the original depends on an input or parameter in a way that autograd can follow"
        )
    gradients = [gradient for gradient in found if gradient is not None]
    theirs = {g.untyped_storage().data_ptr() for g in into if g is not None}
    own = {g.untyped_storage().data_ptr(): g.untyped_storage().nbytes() for g in gradients}
    written = sum(size for address, size in own.items() if address not in theirs)
    in_place = frozenset(k for k, v in passed.items() if isinstance(v, torch.Tensor) and v._version)
    return _Originals(names, into, gradients, written, in_place)


def _call(
    module: nn.Module, arguments: dict[str, Any], change: Change | None
) -> tuple[list[Any], dict[str, torch.Tensor], dict[str, Any]]:
    """Calls a copy of the module; returns its output leaves, the tensors to differentiate by, and what it got, by name."""
    fresh = copied(module, change or torch.clone)
    given = {
        k: (change or torch.clone)(v) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()
    }
    sources = {
        name: value.requires_grad_()
        for name, value in given.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    # The original gets copies, because it may change its inputs in place.
    passed = {name: sources[name].clone() if name in sources else value for name, value in given.items()}
    sources |= {f"{PARAMETER}{n}": p for n, p in fresh.named_parameters() if p.requires_grad}
    with torch.enable_grad():
        return flatten(fresh(**nested(passed)))[1], sources, passed


def _otherwise(
    module: nn.Module,
    arguments: dict[str, Any],
    names: list[str],
    into: list[torch.Tensor | None],
    way: contextlib.AbstractContextManager[Any],
) -> Tensors:
    """Returns the gradients as another honest implementation might compute them; none where it fails."""
    try:
        with way:
            leaves, sources, _ = _call(module, arguments, None)
            found = _differentiate(leaves, [sources[name] for name in names], into)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # the original runs, so it is the other way that fails
        return []
    return [torch.zeros_like(sources[name]) if g is None else g for name, g in zip(names, found, strict=True)]


def _output_gradients(leaves: list[Any], seed: int, incoming: str) -> list[torch.Tensor | None]:
    """Returns random gradients for the leaves that require one; of several, for every other one under each of ``LAYOUTS``."""
    into: list[torch.Tensor | None] = []
    used = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if incoming in LAYOUTS and len(used) > 1:
        used = used[list(LAYOUTS).index(incoming) :: len(LAYOUTS)]
    for i, leaf in enumerate(leaves):
        if i not in used:
            into.append(None)
            continue
        generator = torch.Generator(leaf.device).manual_seed(SEED + seed + i)
        drawn = torch.randn(leaf.shape, generator=generator, device=leaf.device).to(leaf.dtype)
        into.append(INCOMING[incoming](drawn) if incoming else drawn)
    return into


def _expanded(drawn: torch.Tensor) -> torch.Tensor:
    return drawn.flatten()[:1].clone().reshape(()).expand(drawn.shape)


def _transposed(drawn: torch.Tensor) -> torch.Tensor:
    order = list(range(drawn.dim()))[::-1]
    around = torch.full((*drawn.shape[::-1], 2), float("nan"), dtype=drawn.dtype, device=drawn.device)
    around[..., 0] = drawn.permute(order)
    return around[..., 0].permute(order)


def _scaled(power: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns what multiplies by a power of two, which changes no other digit; by less in float16, which has no room for it."""
    return lambda drawn: drawn * 2.0 ** (power // 2 if drawn.dtype == torch.float16 else power)


def _few(drawn: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.arange(drawn.numel(), device=drawn.device).view(drawn.shape) % 7 == 6, drawn, 0)


LAYOUTS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = MappingProxyType(
    {"expanded": _expanded, "transposed": _transposed}
)
"""How gradients of outputs may lie in memory: one number with strides of 0, as ``sum`` gives, or the first
dimension innermost, with every second element left out."""

INCOMING: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = MappingProxyType(
    {**LAYOUTS, "small": _scaled(-20), "large": _scaled(16), "sparse": _few}
)
"""All kinds of gradients of outputs: as small as those of a mean, as large as where losses are scaled, and mostly 0."""


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Returns all elements of memory between a tensor's first and last one, as they lie there."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((reach + 1 if tensor.numel() else 0,), (1,))


def _differentiate(
    leaves: list[Any], sources: Tensors, into: list[torch.Tensor | None]
) -> tuple[torch.Tensor | None, ...]:
    """Returns the gradients of the sources; None for those that no leaf depends on."""
    pairs = [(leaf, g) for leaf, g in zip(leaves, into, strict=True) if g is not None and leaf.requires_grad]
    if not pairs or not sources:
        return (None,) * len(sources)
    outputs, gradients = zip(*pairs, strict=True)
    return torch.autograd.grad(outputs, sources, gradients, allow_unused=True)
