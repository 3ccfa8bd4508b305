"""Writes the conditions by which ``forward`` chooses between domains."""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.core.syntax import literal
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.visible import Container, Spec, is_own

Specs = Mapping[str, Spec]
"""What ``forward`` can read in one domain, by expression."""


@dataclass(frozen=True)
class Region:
    """What one text is for: a domain, and the sizes of its case, for which the text was chosen."""

    specs: Specs
    sizes: Mapping[str, int]
    ranges: Mapping[str, tuple[int, int]]
    """Of each named dimension: for other sizes the text may be wrong."""

    def shapes(self) -> dict[str, tuple[int | tuple[int, int] | None, ...]]:
        """Returns the shapes of all tensors by expression, with ranges in the place of names."""
        return {
            name: tuple(n if isinstance(n, int) else self.ranges.get(n) for n in spec.shape)
            for name, spec in self.specs.items()
            if isinstance(spec, TensorSpec)
        }

    def elements(self) -> tuple[int, str] | None:
        """Returns how many elements the first input with named dimensions has, and its name; None if there is none."""
        for name, spec in self.specs.items():
            if isinstance(spec, TensorSpec) and not is_own(name) and self.sizes.keys() & spec.shape:
                return math.prod(n if isinstance(n, int) else self.sizes[n] for n in spec.shape), name
        return None


def conditions(groups: Sequence[Sequence[Region]]) -> list[str]:
    """Writes for each group of domains an expression over ``self`` and forward's parameters that holds only in it."""
    everything = [region.specs for group in groups for region in group]
    names = list(dict.fromkeys(name for domain in everything for name in domain))
    distinguishing = [name for name in names if len({repr(domain.get(name)) for domain in everything}) > 1]
    # Tests of inputs are preferred to tests of the module's attributes.
    inputs = [name for name in distinguishing if not is_own(name)]
    everywhere = [name for name in distinguishing if all(name in domain for domain in everything)]
    attributes = [name for name in everywhere if is_own(name)]
    alike: defaultdict[str, list[tuple[int, Region]]] = defaultdict(list)
    for number, group in enumerate(groups):
        for region in group:
            alike[_test(region.specs, [*inputs, *attributes], everything)].append((number, region))
    tests: list[list[tuple[str, str]]] = [[] for _ in groups]
    for test, regions in alike.items():
        for number, by_size in _by_size(regions):
            tests[number].append((test, by_size))
    return [_any(group, everywhere=len({test for test, _ in group}) == len(alike)) for group in tests]


def _any(tests: Sequence[tuple[str, str]], *, everywhere: bool) -> str:
    """Joins tests of which one must hold, each with the one by size that must hold, too, if there is one.

    ``everywhere`` says that the first ones are all there are: then that by size is enough, where it is the same.
    """
    sizes = {by_size for _, by_size in tests}
    if everywhere and len(sizes) == 1 and sizes != {""}:
        return sizes.pop()
    joined = [" and ".join(part for part in pair if part not in ("", "True")) or "True" for pair in tests]
    return " or ".join(f"({t})" if " and " in t else t for t in joined) if len(joined) > 1 else joined[0]


def _by_size(regions: Sequence[tuple[int, Region]]) -> Iterator[tuple[int, str]]:
    """Yields tests that tell groups apart whose domains are the same, by the number of elements; none for a single group.

    Between the sizes of two cases the boundary is halfway, as a ratio. Each text must do for all sizes, so their ranges are equal.
    """
    if len({number for number, _ in regions}) == 1:
        yield regions[0][0], ""
        return
    counted = sorted((*found, number) for number, region in regions if (found := region.elements()))
    runs = [list(run) for _, run in groupby(counted, key=itemgetter(2))]
    steps = [(before[-1][0], after[0][0]) for before, after in pairwise(runs)]
    apart = any(region.shapes() != regions[0][1].shapes() for _, region in regions)
    if apart or len(counted) < len(regions) or any(small == large for small, large in steps):
        raise RenderError("Two cases need different kernels, but nothing that forward sees tells them apart.")
    boundaries = [math.isqrt(small * large) for small, large in steps]
    for run, above, up_to in zip(runs, [None, *boundaries], [*boundaries, None], strict=True):
        _, name, number = run[0]
        tests = [f"{name}.numel() > {above}"] * (above is not None)
        tests += [f"{name}.numel() <= {up_to}"] * (up_to is not None)
        yield number, " and ".join(tests)


def _test(domain: Specs, names: Sequence[str], everything: Sequence[Specs]) -> str:
    """Returns a condition that holds for a domain and none of the others; each part of it tells one that no part before did."""
    parts, left = [], [other for other in everything if repr(other) != repr(domain)]
    for name in names:
        for text, holds in _tests(name, domain.get(name), [other.get(name) for other in everything]):
            fitting = [other for other in left if holds(other.get(name))]
            if len(fitting) < len(left):
                parts.append(text)
                left = fitting
    return " and ".join(parts) or "True"


def _tests(name: str, value: Any, others: Sequence[Any]) -> Iterator[tuple[str, Callable[[Any], bool]]]:
    """Yields what tells one value of an argument from others: conditions as text, and for descriptions of values."""
    if isinstance(value, Container):
        yield f"isinstance({name}, {value.kind})", lambda other: getattr(other, "kind", "") == value.kind
        yield f"len({name}) == {value.count}", lambda other: other.count == value.count
        return
    if not isinstance(value, TensorSpec):
        constant = value is None or isinstance(value, bool)
        yield (
            f"{name} {'is' if constant else '=='} {ast.unparse(literal(value))}",
            lambda other: other is value if constant else other == value,
        )
        return
    if not all(isinstance(other, TensorSpec) for other in others):
        alone = all(other is None or isinstance(other, TensorSpec) for other in others)
        text = f"{name} is not None" if alone else f"isinstance({name}, torch.Tensor)"
        yield text, lambda other: isinstance(other, TensorSpec)
    yield f"{name}.dtype == torch.{value.dtype}", lambda other: other.dtype == value.dtype
    yield f"{name}.dim() == {len(value.shape)}", lambda other: len(other.shape) == len(value.shape)
    for dim, size in enumerate(value.shape):
        if isinstance(size, int):
            yield f"{name}.shape[{dim}] == {size}", partial(_fits, dim, size)


def _fits(dim: int, size: int, other: Any) -> bool:
    return len(other.shape) <= dim or bool(other.shape[dim] == size)
