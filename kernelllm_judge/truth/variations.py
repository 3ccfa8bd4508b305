"""Varies inputs as far as the original allows: every value that it accepts may come when a kernel is used.

What an input means is not known, so it is tried: a changed input counts if the original still runs, gives
outputs of the same form, and, unless NaN and infinities are what is asked, as finite and as exact as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from kernelllm_judge.core.eight_bits import computable, narrowed
from kernelllm_judge.truth import exhaust
from kernelllm_judge.truth.directed import Direction
from kernelllm_judge.truth.stress import changed, ends, planted, real_valued

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

REDRAWN = 500_000_003
"""Added to seeds: with the probe's own, ``torch.randn`` would draw what it drew for the user."""

Way = Callable[[torch.Tensor, int], torch.Tensor]
"""Changes a tensor by a seed."""


@dataclass(frozen=True)
class Change:
    """One way to change an input."""

    way: Way
    seed: int

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the changed input."""
        return self.way(tensor, self.seed)


Arguments = dict[str, Any]
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
    return planted(kind) is not None or kind == REPEATED


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
        kind: a kind of ``stress`` or ``exhaust``, ``REPEATED``, ``OUT_OF_RANGE``, ``NAMED``, ``OTHERS_FOR_FIXED`` or
            ``OTHERS_THAN_GIVEN``.
        fixed: names of inputs that have the same values at every seed.
        accepts: tries arguments. Real-valued inputs under ``stress`` are not tried: they take any value.
        numbers: those of ``NAMED``.
    """
    found: dict[str, Change] = {}
    varied = dict(arguments)
    tensors = {k: v for k, v in arguments.items() if isinstance(v, torch.Tensor) and v.numel()}
    _, alone = planted(kind) or ("", "")
    for number, name in enumerate(sorted(tensors, key=lambda k: not real_valued(tensors[k]))):
        if alone not in ("", name):
            continue
        value = tensors[name]
        # Rows are stressed alike in all inputs; two that are drawn anew must not be equal.
        own = seed + number if kind == OTHERS_THAN_GIVEN else seed
        if kind == NAMED:
            changes = _named(value, numbers, seed, _with_other(accepts, varied, name, [*found, name]))
        else:
            every = exhaust.read_kind(kind)
            ways = (
                exhaust.ways(every, value, name, real_valued(value))
                if every
                else _ways(value, kind, name in fixed)
            )
            changes = (Change(way, own) for way in ways)
        for change in changes:
            other = change(value)
            if torch.equal(computable(other), computable(value)):
                continue
            trial = {**varied, name: other}
            free = real_valued(value) and kind not in (OTHERS_FOR_FIXED, OTHERS_THAN_GIVEN)
            if free or accepts(trial, [*found, name]):
                found[name], varied = change, trial
                break
    return found


def direct(
    arguments: Mapping[str, Any], direction: Direction, seed: int, accepts: Accepts
) -> dict[str, Change]:
    """Returns the changes of inputs that the original accepts together, by the inputs' names."""
    found: dict[str, Change] = {}
    varied = dict(arguments)
    for number, (name, value) in enumerate(arguments.items()):
        if not isinstance(value, torch.Tensor) or not value.numel() or direction.only not in ("", name):
            continue
        if not (value.is_floating_point() or (value.dtype in WHOLE and direction.way == "values =")):
            continue
        change = Change(_towards(direction, value, arguments), seed + number)
        trial = {**varied, name: change(value)}
        if not torch.equal(computable(trial[name]), computable(value)) and accepts(trial, [*found, name]):
            found[name], varied = change, trial
    return found


def _towards(direction: Direction, value: torch.Tensor, arguments: Mapping[str, Any]) -> Way:
    if direction.way == "equal":
        alike = (v for v in arguments.values() if isinstance(v, torch.Tensor))
        first = next(v for v in alike if (v.shape, v.dtype) == (value.shape, value.dtype))
        return lambda *_: first.clone()
    return lambda tensor, seed: direction.moved(tensor, torch.Generator(tensor.device).manual_seed(seed))


def _ways(value: torch.Tensor, kind: str, is_fixed: bool) -> list[Way]:
    """Returns the ways to change one input, the strongest first."""
    if kind == OTHERS_FOR_FIXED:
        return [_redrawn, partial(_near, step=1), partial(_near, step=-1), _permuted] if is_fixed else []
    if kind == OTHERS_THAN_GIVEN:
        larger: list[Way] = [lambda *given: _times(2, _redrawn(*given)), lambda tensor, *_: _times(3, tensor)]
        return larger if value.is_floating_point() else []
    if kind == REPEATED:
        return [] if value.is_floating_point() else [_repeated]
    if kind == OUT_OF_RANGE:
        if value.dtype not in WHOLE:
            return []
        limits = torch.iinfo(value.dtype)
        within = [v for v in _OUTSIDE if limits.min <= min(v) and max(v) <= limits.max]
        return [partial(_with, values=values) for values in within]
    # All numbers are finite, as their sum is then.
    if value.is_floating_point() and bool(value.sum(dtype=torch.float64).isfinite()):
        return [lambda tensor, seed: changed(tensor, kind, seed)]
    return []


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
    one = [(number, Change(partial(_with, values=(number,)), seed)) for number in within]
    accepted = tuple(number for number, change in one if accepts(change(value)))
    if accepted:
        yield Change(partial(_with, values=accepted), seed)


def _redrawn(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Returns random values: normal ones, integers in the input's own range or from 0, or booleans."""
    generator = torch.Generator(tensor.device).manual_seed(seed + REDRAWN)
    if not tensor.is_floating_point():
        if tensor.dtype == torch.bool:
            return torch.rand(tensor.shape, generator=generator, device=tensor.device) < 0.5
        low, high = ends(tensor)
        low = min(low, 0) if low == high else low
        return torch.randint(
            low, high + 1, tensor.shape, generator=generator, device=tensor.device, dtype=tensor.dtype
        )
    scale = max(map(abs, ends(tensor)))
    drawn = torch.randn(tensor.shape, generator=generator, device=tensor.device)
    return narrowed(drawn * (scale or 1.0), tensor.dtype)


def _near(tensor: torch.Tensor, seed: int, step: int) -> torch.Tensor:
    """Returns floats of the same signs, integers of which some differ by ``step``, or the opposite booleans."""
    generator = torch.Generator(tensor.device).manual_seed(seed)
    if tensor.dtype == torch.bool:
        return ~tensor
    draw = torch.rand(tensor.shape, generator=generator, device=tensor.device)
    if tensor.is_floating_point():
        return _times((0.6 + 0.8 * draw).to(computable(tensor).dtype), tensor)
    return torch.where(draw < 0.5, tensor, tensor + step)


def _times(factor: float | torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return narrowed(computable(tensor) * factor, tensor.dtype)


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
        same = [torch.full_like(rows[:1, :1], end).expand_as(rows) for end in ends(rows)]
        kinds = [*same, fresh, fresh[:, :1].expand_as(rows)]
    which = torch.randperm(len(rows), generator=generator, device=tensor.device) % len(kinds)
    for number, kind in enumerate(kinds):
        rows = torch.where((which == number)[:, None], kind, rows)
    return rows.reshape(tensor.shape)


def _with(tensor: torch.Tensor, seed: int, values: tuple[int, ...]) -> torch.Tensor:
    """Returns the tensor with each of the values in an eighth of its places, or fewer where there are many values."""
    generator = torch.Generator(tensor.device).manual_seed(seed)
    flat = tensor.flatten().clone()
    order = torch.randperm(len(flat), generator=generator, device=tensor.device)
    some = max(1, len(flat) // max(8, len(values)))
    for number, value in enumerate(values):
        flat[order[number * some : (number + 1) * some]] = value
    return flat.reshape(tensor.shape)
