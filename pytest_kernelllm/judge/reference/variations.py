"""Varies inputs as far as the original allows: every value that it accepts may come when a kernel is used.

What an input means is not known, so it is tried: a changed input counts if the original still runs, gives
outputs of the same form, and, unless NaN and infinities are what is asked, as finite and as exact as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from pytest_kernelllm.judge.reference.rows import only_finite
from pytest_kernelllm.judge.reference.stress import NEAR_DUPLICATES, PLANTED, changed, real_valued

REPEATED = "few different values"
"""Changes integers and booleans row by row: to the least, the largest, one or random values of their own."""
OUT_OF_RANGE = "negative and very large values"
"""Writes -1, -100 and values beyond 32 bits into integers."""
NAMED = "numbers that the module names, and greatest indices"
"""Writes integers that mean something to the original, such as ``ignore_index``, as far as it accepts each."""
OTHERS_FOR_FIXED = "other values where they are always the same"
"""Changes inputs that have the same values at every seed."""
OTHERS_THAN_GIVEN = "other values than those given"
"""Draws floating inputs anew, of both signs and larger; those that must keep their sign are only made larger."""

Arguments = dict[str, Any]
Change = Callable[[torch.Tensor], torch.Tensor]
Accepts = Callable[[Arguments, Collection[str]], bool]
"""Whether the original accepts arguments; the second one names those that may lie outside their usual range."""

WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

_OUTSIDE = (
    (-1, -100, (1 << 31) + 5, -(1 << 31) - 7, (1 << 55) + 1),
    (-1, -100, (1 << 31) + 5, -(1 << 31) - 7),
    (-1, -100, (1 << 31) - 1, -(1 << 31)),
    (-1, -100),
    (-100,),
    (-1,),
    (0,),
)
"""Values that are written into integers; the first tuple that the original accepts counts. The last one is the least
index, before which there is nothing to read."""


def allows_nonfinite(kind: str) -> bool:
    """Whether inputs changed in this way may make outputs NaN or infinite."""
    return kind in PLANTED or kind == REPEATED


def vary(
    arguments: Arguments,
    kind: str,
    seed: int,
    fixed: Collection[str],
    accepts: Accepts,
    numbers: Sequence[int] = (),
) -> Mapping[str, Change]:
    """Returns the changes of inputs that the original accepts together, by the inputs' names.

    Args:
        arguments: by parameter name.
        kind: a kind of ``stress``, ``REPEATED``, ``OUT_OF_RANGE``, ``NAMED``, ``OTHERS_FOR_FIXED`` or
            ``OTHERS_THAN_GIVEN``.
        seed: the judge's secret.
        fixed: names of inputs that have the same values at every seed.
        accepts: tries arguments. Real-valued inputs under ``stress`` are not tried: they take any value.
        numbers: those of ``NAMED``.
    """
    found: dict[str, Change] = {}
    varied = dict(arguments)
    tensors = {k: v for k, v in arguments.items() if isinstance(v, torch.Tensor) and v.numel()}
    for number, name in enumerate(sorted(tensors, key=lambda k: not real_valued(tensors[k]))):
        value = tensors[name]
        # Rows are stressed alike in all inputs; two that are drawn anew must not be equal.
        own = seed + number if kind == OTHERS_THAN_GIVEN else seed
        if kind == NAMED:
            changes = _named(value, numbers, seed, _with_other(accepts, varied, name, [*found, name]))
        else:
            changes = _changes(value, kind, own, name in fixed)
        for change in changes:
            other = change(value)
            if torch.equal(other, value):
                continue
            trial = {**varied, name: other}
            free = real_valued(value) and kind not in (OTHERS_FOR_FIXED, OTHERS_THAN_GIVEN)
            if free or accepts(trial, [*found, name]):
                found[name], varied = change, trial
                break
    return found


def _changes(value: torch.Tensor, kind: str, seed: int, is_fixed: bool) -> Iterator[Change]:
    """Yields the ways to change one input, the strongest first."""
    if kind == OTHERS_FOR_FIXED:
        if is_fixed:
            yield lambda tensor: _redrawn(tensor, seed)
            yield lambda tensor: _near(tensor, seed, 1)
            yield lambda tensor: _near(tensor, seed, -1)
            yield lambda tensor: _permuted(tensor, seed)
    elif kind == OTHERS_THAN_GIVEN:
        if value.is_floating_point():
            yield lambda tensor: 2 * _redrawn(tensor, seed)
            yield lambda tensor: 3 * tensor
    elif kind == REPEATED:
        if not value.is_floating_point():
            yield lambda tensor: _repeated(tensor, seed)
    elif kind == OUT_OF_RANGE:
        if value.dtype in WHOLE:
            limits = torch.iinfo(value.dtype)
            for values in _OUTSIDE:
                if all(limits.min <= v <= limits.max for v in values):
                    yield partial(_with, values=values, seed=seed)
    elif kind in NEAR_DUPLICATES and not real_valued(value):
        if not is_fixed:
            yield lambda tensor: _few_redrawn(tensor, seed, NEAR_DUPLICATES.index(kind))
    elif value.is_floating_point() and value.isfinite().all():
        yield lambda tensor: changed(tensor, kind, seed)


def _with_other(
    accepts: Accepts, arguments: Arguments, name: str, names: Collection[str]
) -> Callable[[torch.Tensor], bool]:
    """Returns whether the original accepts the arguments with another one of a name."""
    return lambda other: accepts({**arguments, name: other}, names)


def _named(
    value: torch.Tensor, numbers: Sequence[int], seed: int, accepts: Callable[[torch.Tensor], bool]
) -> Iterator[Change]:
    """Yields the change that writes all numbers that the original accepts alone."""
    if value.dtype not in WHOLE:
        return
    limits = torch.iinfo(value.dtype)
    within = [number for number in numbers if limits.min <= number <= limits.max]
    accepted = tuple(number for number in within if accepts(_with(value, (number,), seed)))
    if accepted:
        yield lambda tensor: _with(tensor, accepted, seed)


def _redrawn(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Returns random values: normal ones, integers in the tensor's own range or from 0, or booleans."""
    generator = torch.Generator(tensor.device).manual_seed(seed)
    if not tensor.is_floating_point():
        return _drawn_like(tensor, tensor.shape, generator)
    scale = float(only_finite(tensor).abs().max()) if tensor.numel() else 0.0
    drawn = torch.randn(tensor.shape, generator=generator, device=tensor.device)
    return (drawn * (scale or 1.0)).to(tensor.dtype)


def _drawn_like(tensor: torch.Tensor, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Returns random booleans, or integers in the tensor's own range or from 0."""
    if tensor.dtype == torch.bool:
        return torch.rand(shape, generator=generator, device=tensor.device) < 0.5
    low, high = int(tensor.min()), int(tensor.max())
    low = min(low, 0) if low == high else low
    return torch.randint(low, high + 1, shape, generator=generator, device=tensor.device, dtype=tensor.dtype)


def _few_redrawn(tensor: torch.Tensor, seed: int, parity: int) -> torch.Tensor:
    """Returns the tensor with other values of its own range in a few even or odd places."""
    flat = tensor.flatten().clone()
    places = torch.arange(parity, len(flat), max(2, 2 * (len(flat) // 16)), device=tensor.device)
    generator = torch.Generator(tensor.device).manual_seed(seed)
    if tensor.is_floating_point():
        share = torch.rand(len(places), generator=generator, device=tensor.device).to(tensor.dtype)
        flat[places] = flat.min() + share * (flat.max() - flat.min())
    else:
        flat[places] = _drawn_like(tensor, places.shape, generator)
    return flat.reshape(tensor.shape)


def _near(tensor: torch.Tensor, seed: int, step: int) -> torch.Tensor:
    """Returns floats of the same signs, integers of which some differ by ``step``, or the opposite booleans."""
    generator = torch.Generator(tensor.device).manual_seed(seed)
    if tensor.dtype == torch.bool:
        return ~tensor
    draw = torch.rand(tensor.shape, generator=generator, device=tensor.device)
    if tensor.is_floating_point():
        return tensor * (0.6 + 0.8 * draw).to(tensor.dtype)
    return torch.where(draw < 0.5, tensor, tensor + step)


def _permuted(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator(tensor.device).manual_seed(seed)
    order = torch.randperm(tensor.numel(), generator=generator, device=tensor.device)
    return tensor.flatten()[order].reshape(tensor.shape)


def _repeated(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    width = tensor.shape[-1] if tensor.dim() > 1 else 1
    rows = tensor.reshape(-1, width)
    generator = torch.Generator(tensor.device).manual_seed(seed)
    fresh = _redrawn(rows, seed)
    if tensor.dtype == torch.bool:
        kinds = [torch.ones_like(rows), torch.zeros_like(rows), fresh]
    else:
        kinds = [rows.min().expand_as(rows), rows.max().expand_as(rows), fresh, fresh[:, :1].expand_as(rows)]
    which = torch.randperm(len(rows), generator=generator, device=tensor.device) % len(kinds)
    for number, kind in enumerate(kinds):
        rows = torch.where((which == number)[:, None], kind, rows)
    return rows.reshape(tensor.shape)


def _with(tensor: torch.Tensor, values: tuple[int, ...], seed: int) -> torch.Tensor:
    """Returns the tensor with each of the values in an eighth of its places, or fewer where there are many values."""
    generator = torch.Generator(tensor.device).manual_seed(seed)
    flat = tensor.flatten().clone()
    order = torch.randperm(len(flat), generator=generator, device=tensor.device)
    some = max(1, len(flat) // max(8, len(values)))
    for number, value in enumerate(values):
        flat[order[number * some : (number + 1) * some]] = value
    return flat.reshape(tensor.shape)
