"""Runs through all values of an input, where each element of an output depends on one element of it.

Of 16 bits or fewer these are all bit patterns. Of wider floats they are spread evenly over them: every exponent, both signs,
and as many mantissas as there is room for. Neighbours are of one sign and nearly one exponent, so that no error hides behind
larger numbers of its row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelllm_judge.core.eight_bits import at_least_float32, computable, narrowed
from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.bounds import ErrorBounds
from kernelllm_judge.truth.probes import EVERY, elements, innermost
from kernelllm_judge.truth.rows import as_rows, least_unit
from kernelllm_judge.truth.stress import ends

BITS = 16
"""Most bits of an element whose values are all run."""

GROUP = 128
"""Values of a row where there is room: in bfloat16 those of one exponent…"""

WIDE = 1 << 20
"""…and values of a wider input on a GPU, over all probes."""

MOST_PARTS = 8
"""Most probes over which the values of all inputs are spread…"""

MOST_ELEMENTS = 1 << 16
"""…of so many elements each, where sizes are free and the input is not wider; and more than one probe…"""

MOST_TOGETHER = 1 << 19
"""…where they have no more elements together than this."""

MASKS = 6
"""Random halves of an input that are replaced: two elements on which an output depends are apart in each with probability 1/2."""

LARGEST = 1 << 24
"""Most elements of an input with which it is found out what outputs depend on."""

_NAME = re.compile(rf"{EVERY}( finite)? value of `(.+)`, part (\d+) of (\d+)")


@dataclass(frozen=True)
class Every:
    """A kind of stress: one of the parts in which all values of an input are run."""

    name: str
    part: int
    parts: int
    finite: bool = False
    """Whether NaN and infinities are left out."""

    @property
    def kind(self) -> str:
        """The kind in words, as ``Probe.stress``."""
        return (
            f"{EVERY}{' finite' * self.finite} value of `{self.name}`, part {self.part + 1} of {self.parts}"
        )


def read_kind(kind: str) -> Every | None:
    """Returns what a kind of stress says; None if it is another one."""
    found = _NAME.fullmatch(kind)
    return Every(found[2], int(found[3]) - 1, int(found[4]), bool(found[1])) if found else None


def asked(
    domain: Domain, ranges: Mapping[str, tuple[int, int]], most: int, nonfinite: bool
) -> Iterator[tuple[dict[str, int], str]]:
    """Yields sizes and a kind for each probe that may run all values, or many, of one of the largest inputs.

    Whether outputs depend on single elements is found out when they are run, see ``depends_on_single_elements``.

    Args:
        ranges: inclusive range of each named dimension.
        most: elements of an input that is wider than ``BITS``, over all probes.
        nonfinite: whether NaN and infinities are run as well.
    """
    found = []
    for name, spec in domain.inputs.items():
        bits = bits_of(getattr(torch, spec.dtype)) if isinstance(spec, TensorSpec) else 0
        if isinstance(spec, TensorSpec) and bits:
            sizes = _sizes(domain, ranges, MOST_ELEMENTS if bits <= BITS else most)
            shape = [sizes[each] if isinstance(each, str) else each for each in spec.shape]
            if 1 < math.prod(shape) == elements(domain, sizes):
                found.append((name, bits, sizes, shape))
    for name, bits, sizes, shape in found:
        rows, width = as_rows(torch.empty(shape, device="meta")).shape
        needed = -(-(1 << BITS) // min(GROUP, width)) if bits >= BITS else 1
        room = min(MOST_PARTS // len(found), MOST_TOGETHER // (rows * width))
        parts = max(1, min(room, -(-needed // rows)))
        for part in range(parts):
            yield sizes, Every(name, part, parts, not nonfinite).kind


def _sizes(domain: Domain, ranges: Mapping[str, tuple[int, int]], most: int) -> dict[str, int]:
    """Returns sizes with many short rows."""
    rows = innermost(domain)
    sizes = {
        name: max(low, min(high, GROUP if name in rows else most)) for name, (low, high) in ranges.items()
    }
    while elements(domain, sizes) > most and (free := [k for k in sizes if sizes[k] > ranges[k][0]]):
        longest = max(free, key=lambda name: (name not in rows, sizes[name]))
        sizes[longest] = max(sizes[longest] // 2, ranges[longest][0])
    return sizes


def bits_of(dtype: torch.dtype) -> int:
    """Returns how many bits the values of a dtype have that can be run; 0 for others."""
    if dtype.is_floating_point:
        return torch.finfo(dtype).bits
    return torch.iinfo(dtype).bits if dtype in (torch.uint8, torch.int8, torch.int16) else 0


def depends_on_single_elements(
    run: Callable[[dict[str, Any]], Sequence[torch.Tensor]],
    some: dict[str, Any],
    others: dict[str, Any],
    name: str,
) -> bool:
    """Whether each element of every output depends on one element of an input at most, and a quarter of them on one.

    Random halves of the input are replaced by other values: each element of an output must then be what it was before, or what
    it is when all of the input is replaced; and the other one when the other half is.

    Args:
        run: runs the original.
        some: arguments.
        others: arguments with other values.
    """
    first, second = some[name], others[name]
    if first.shape != second.shape or not 1 < first.numel() <= LARGEST:
        return False
    before, after = run(some), run(some | {name: second})
    changed = sum(int(_differ(*pair).sum()) for pair in zip(before, after, strict=True))
    if 4 * changed < sum(leaf.numel() for leaf in before):
        return False
    generator = torch.Generator(first.device).manual_seed(first.numel())
    for _ in range(MASKS):
        half = torch.rand(first.shape, generator=generator, device=first.device) < 0.5
        one = run(some | {name: torch.where(half, second, first)})
        two = run(some | {name: torch.where(half, first, second)})
        for old, new, here, there in zip(before, after, one, two, strict=True):
            kept = ~_differ(here, old) & ~_differ(there, new)
            if not bool((kept | (~_differ(here, new) & ~_differ(there, old))).all()):
                return False
    return True


def _differ(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    differ = first != second
    return differ & ~(first.isnan() & second.isnan()) if first.is_floating_point() else differ


def with_numbers_about_one(bounds: ErrorBounds, policy: Policy) -> ErrorBounds:
    """Returns bounds that allow the rounding of numbers about 1 in every element, however small its row is.

    ``log(1 + exp(x))`` and ``1 + erf(x)`` are computed from such numbers. Elements are judged one by one, not together.
    """
    dtype = bounds.ruler.dtype
    allowed = policy.single_eps * torch.finfo(at_least_float32(dtype)).eps
    least = allowed / bounds.ruler.scale.clamp_min(least_unit(dtype))
    widened = {name: getattr(bounds, name).maximum(least) for name in ("worst", "usual", "rows", "typical")}
    return replace(bounds, **widened, groups=tuple(torch.full_like(g, math.inf) for g in bounds.groups))


Way = Callable[[torch.Tensor, int], torch.Tensor]
"""See ``variations.Way``."""


def ways(every: Every, value: torch.Tensor, name: str, free: bool) -> list[Way]:
    """Returns the ways to change an input, the one with the most values first.

    The others, where they are floats, stay as they are but for a factor for each row.

    Args:
        every: which values of which input are run.
        value: the input.
        name: its name.
        free: whether it may have any value, NaN and infinities among them.
    """
    if name != every.name:
        return [_scaled_rows] if value.is_floating_point() else []
    bits = bits_of(value.dtype)
    if not value.is_floating_point():
        low, high = torch.iinfo(value.dtype).min, torch.iinfo(value.dtype).max
        return [
            lambda tensor, seed: _fill(tensor, every, seed, low, high),
            lambda tensor, seed: _fill(tensor, every, seed, *ends(tensor)),
        ]
    largest = torch.finfo(value.dtype).max
    everything = (1 << min(bits, 32) - 1) - 1
    finite, moderate = (_magnitude(most, value.dtype) for most in (largest, math.sqrt(largest) / 64))

    def within(most: int, signs: int) -> Way:
        return lambda tensor, seed: _fill(tensor, every, seed, 0, most, signs)

    def inside(tensor: torch.Tensor, seed: int) -> torch.Tensor:
        low, high = ends(tensor)
        nearest, farthest = (_magnitude(end, value.dtype) for end in (max(low, 0.0), max(-low, high)))
        return _fill(tensor, every, seed, nearest, farthest, 1 + (low < 0))

    if free:
        return [within(finite if every.finite else everything, 2)]
    return [*(within(most, signs) for signs in (2, 1) for most in (finite, moderate)), inside]


def _magnitude(number: float, dtype: torch.dtype) -> int:
    """Returns the bits of a number, which grow with it; of float64 the first 32."""
    wide = torch.tensor([number], dtype=dtype)
    bits = int(wide.view(_integer(dtype)))
    return bits >> 32 if dtype == torch.float64 else bits


def _integer(dtype: torch.dtype) -> torch.dtype:
    return {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[dtype.itemsize * 8]


def _fill(tensor: torch.Tensor, every: Every, seed: int, low: int, high: int, signs: int = 1) -> torch.Tensor:
    """Returns a tensor of the same form with this part of all values, in order, and each row's as often as they fit.

    Args:
        low: the least value of an integer, or the least magnitude of a float, as its bits.
        high: the greatest.
        signs: 2 if a float has both signs.
    """
    rows = as_rows(tensor)
    count, width = rows.shape
    each = high - low + 1
    total, segments = each * signs, count * every.parts
    device = tensor.device
    number = torch.arange(count, device=device) + every.part * count
    start, stop = number * total // segments, -((-number - 1) * total // segments)
    length = (stop - start)[:, None]
    most = min(width, max(GROUP, -(-total // segments)), 1 << 12)
    place = torch.arange(most, device=device)
    index = start[:, None] + place * length // most
    # Where not all fit, every other one has few digits, as thresholds have, and the rest have any.
    step = 1 << max(0, (total // (segments * most)).bit_length() - 1)
    drawn = torch.randint(
        step, (count, most), generator=torch.Generator(device).manual_seed(seed), device=device
    )
    index = torch.where(place % 2 == 0, index - index % step, index + drawn).clamp(max=total - 1)
    negative = index >= each
    bits = low + torch.where(negative, index - each, index)
    if tensor.is_floating_point():
        sign = 1 << min(bits_of(tensor.dtype), 32) - 1
        bits = torch.where(negative, bits - sign, bits)  # as a signed integer
        if tensor.dtype == torch.float64:
            bits = bits << 32
        values = bits.to(_integer(tensor.dtype)).view(tensor.dtype)
    else:
        values = bits.to(tensor.dtype)
    places = torch.arange(width, device=device)
    # Where not all of them fit into a row, they are taken evenly.
    return values[:, places % most].reshape(tensor.shape)


def _scaled_rows(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    rows = as_rows(tensor)
    generator = torch.Generator(tensor.device).manual_seed(seed)
    factors = torch.tensor([1.0, -1.0, 1.0, 1e-3, 1e3, 0.0], device=tensor.device)
    which = torch.randint(len(factors), (len(rows), 1), generator=generator, device=tensor.device)
    return narrowed(computable(rows) * factors[which].to(computable(rows).dtype), tensor.dtype).reshape(
        tensor.shape
    )
