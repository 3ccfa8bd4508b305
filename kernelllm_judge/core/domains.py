"""Compares what a kernel says it supports with what a target's cases cover. What ships is never wider than what is judged.

Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kernelllm_judge.core.offsets import offsets_have_64_bits
from kernelllm_judge.core.targets import Case, Domain, Scalar, TensorSpec, is_pin


def reached(cases: Sequence[Case], source: str) -> list[Case]:
    """Cuts cases down to the sizes that a kernel module's offsets reach: up to 2**31 elements, unless they have 64 bits.

    Larger tensors take too long to judge, so that only the kernel's own arithmetic can show that they are right.
    """
    if all(case.dims_within_32_bits is None for case in cases) or offsets_have_64_bits(source):
        return list(cases)
    return [
        case
        if (dims := case.dims_within_32_bits) is None
        else replace(case, domain=replace(case.domain, dims=dims))
        for case in cases
    ]


def sized(
    inputs: Mapping[str, TensorSpec | Scalar], sizes: Mapping[str, int]
) -> dict[str, TensorSpec | Scalar]:
    """Returns the arguments with sizes in place of the dimensions that have one."""
    return {
        name: TensorSpec(s.dtype, tuple(sizes.get(n, n) if isinstance(n, str) else n for n in s.shape))
        if isinstance(s, TensorSpec)
        else s
        for name, s in inputs.items()
    }


def at_own_sizes(case: Case) -> Case:
    """Returns the case with its named dimensions fixed at its own sizes."""
    sizes = {name: case.sizes.get(name, low) for name, (low, _) in case.domain.dims.items()}
    domain = replace(case.domain, inputs=sized(case.domain.inputs, sizes), dims={})
    return replace(case, domain=domain)


INTERPRETED_ELEMENTS = 1 << 16
"""Most elements of an input, and largest product of the named dimensions, that ship after a verdict without a GPU…"""
INTERPRETED_ROWS = 1 << 6
"""…and most rows of an input: kernels run a program or more for each, one after the other in Triton's interpreter."""


def interpretable(domain: Domain, case: Case) -> Domain:
    """Cuts a domain down to the sizes that ship where Triton's interpreter judges: it is asked about the largest ones.

    The longest dimension that is not only the last one is cut, by half at most, until there are few rows; then the longest of
    all until there are few elements. The case's own sizes stay inside where they are that small: a kernel that excludes them
    would never run. A domain that is too large even at its smallest sizes keeps these: they are judged as they are.
    """
    # Each integer may name a row of its own.
    shapes: list[Sequence[int | str]] = [
        (*spec.shape, 1) if "int" in spec.dtype else spec.shape
        for spec in domain.inputs.values()
        if isinstance(spec, TensorSpec)
    ]
    outer = {size for shape in shapes for size in shape[:-1]}
    dims = dict(domain.dims)

    def size(shape: Sequence[int | str]) -> int:
        return math.prod(dims[each][1] if isinstance(each, str) else each for each in shape)

    def rows(shape: Sequence[int | str]) -> int:
        return size(shape[:-1])

    every = list(dims)
    least = {name: low for name, (low, _) in dims.items()}
    own = {
        name: case.sizes[name] for name, (low, high) in dims.items() if low <= case.sizes.get(name, 0) <= high
    }
    dims |= {name: (size, size) for name, size in own.items()}
    if max(map(size, [*shapes, every])) <= INTERPRETED_ELEMENTS:
        least |= own
    dims = dict(domain.dims)

    def cut(names: Sequence[str], measure: Callable[[], int], limit: int) -> None:
        while (now := measure()) > limit and (free := [n for n in names if least[n] < dims[n][1]]):
            low, high = dims[name := max(free, key=lambda each: dims[each][1])]
            dims[name] = (low, max(least[name], high // 2, high * limit // now))

    leading = [name for name in every if name in outer]
    cut(leading, lambda: max(map(rows, shapes), default=0), INTERPRETED_ROWS)
    cut(every, lambda: max(map(size, [*shapes, every])), INTERPRETED_ELEMENTS)
    return replace(domain, dims=dims)


def covers(support: Domain, case: Case) -> Mapping[str, tuple[int, int]] | str:
    """Says which sizes of a case a kernel's domain covers.

    Returns:
        Inclusive range of each of the case's named dimensions; or, where the domain does not cover the case, why.
    """
    want = case.domain
    if support.training != want.training:
        return f"made for training={support.training}"
    if want.grad and not support.grad:
        return "computes no gradients"
    if set(support.inputs) != set(want.inputs):
        return f"takes the arguments {sorted(support.inputs)}, the target {sorted(want.inputs)}"
    for name, value in want.attributes.items():
        if name not in support.attributes:
            if not may_stay_open(name, value) and not is_pin(name):
                return f"does not say which `{name}` it was made for"
        elif not _same(support.attributes[name], value):
            return f"made for {name}={support.attributes[name]!r}, not {value!r}"
    ranges = dict(want.dims)
    for name, spec in want.inputs.items():
        have = support.inputs[name]
        if not isinstance(spec, TensorSpec) or not isinstance(have, TensorSpec):
            if have != spec:
                return f"made for {name}={have!r}, not {spec!r}"
            continue
        if have.dtype != spec.dtype or len(have.shape) != len(spec.shape):
            return f"made for `{name}` of {have.dtype} with {len(have.shape)} dimensions"
        for ours, theirs in zip(spec.shape, have.shape, strict=True):
            if isinstance(theirs, str) and theirs not in support.dims:
                return f"gives no range for the dimension `{theirs}`"
            low, high = _range(theirs, support)
            if isinstance(ours, int):
                if not low <= ours <= high:
                    return f"made for another size of `{name}`: {theirs}, not {ours}"
            else:
                ranges[ours] = (max(ranges[ours][0], low), min(ranges[ours][1], high))
                if ranges[ours][0] > ranges[ours][1]:
                    return f"covers no size of `{ours}` that the target declares"
    return ranges


def beyond(support: Domain, case: Case) -> str:
    """Says what a kernel's domain claims that judging this case does not show; empty if it lies within the case."""
    ranges = covers(support, case)
    if isinstance(ranges, str):
        return ranges
    want = case.domain
    if support.grad != want.grad:
        return f"made for grad={support.grad}"
    if support.returns != want.returns:
        return (
            f"made to return {support.returns or 'no dataclass'}, the target returns {want.returns or 'none'}"
        )
    if unpinned := next((n for n in want.attributes if is_pin(n) and n not in support.attributes), None):
        return f"does not say which `{unpinned}` it was made for"
    names: dict[str, set[int | str]] = {}
    for name, spec in want.inputs.items():
        have = support.inputs[name]
        if not isinstance(spec, TensorSpec) or not isinstance(have, TensorSpec):
            continue
        for ours, theirs in zip(spec.shape, have.shape, strict=True):
            (low, high), (least, most) = _range(theirs, support), _range(ours, want)
            if low < least or high > most:
                return (
                    f"made for sizes of `{name}` from {low} to {high}, where the case has {least} to {most}"
                )
            if isinstance(ours, str):
                names.setdefault(ours, set()).add(theirs if low < high else low)
    if untied := next((ours for ours, theirs in names.items() if len(theirs) > 1), None):
        return f"made for tensors that differ in `{untied}`"
    return ""


def shipped(declared: Sequence[Domain], cases: Sequence[Case], *, on_gpu: bool) -> tuple[Domain, ...]:
    """Cuts declared domains down to those that judging a target's cases covers.

    A domain that lies within a case stays as it is. Any other becomes what it has in common with each case: the case's
    arguments, attributes and modes, and the sizes that both have. One that has nothing in common with any is left out.
    Where no GPU judges, what is left is cut down to what is ``interpretable``.
    """
    found: list[Domain] = []
    for support in declared:
        within = [(support, case) for case in cases if not beyond(support, case)]
        parts = within[:1] or [
            (common, case) for case in cases if (common := _common(support, case)) is not None
        ]
        cut = [part if on_gpu else interpretable(part, case) for part, case in parts]
        found += [part for part in cut if part not in found]
    return tuple(found)


def _common(support: Domain, case: Case) -> Domain | None:
    ranges = covers(support, case)
    if isinstance(ranges, str):
        return None
    attributes = {
        name: value
        for name, value in case.domain.attributes.items()
        if name in support.attributes or not may_stay_open(name, value)
    }
    return replace(case.domain, attributes=attributes, dims=dict(ranges), aligned=support.aligned)


def may_stay_open(name: str, value: object) -> bool:
    """Whether a domain may leave an attribute out: a float then is read by the kernel, which is judged.

    One in a tuple cannot be set to another value, nor can an infinite one or NaN, so nothing would show that it is read.
    """
    return isinstance(value, float) and math.isfinite(value) and "[" not in name


def _same(listed: object, value: object) -> bool:
    return listed == value or (listed != listed and value != value)  # NaN


def _range(entry: int | str, domain: Domain) -> tuple[int, int]:
    """The sizes that an entry of a shape stands for."""
    return domain.dims[entry] if isinstance(entry, str) else (entry, entry)
