"""Defines what is asked of a target: the sizes, seeds and kinds of inputs with which a case is tested."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernelllm_judge.core.records import Case, Domain, TensorSpec
from kernelllm_judge.truth.directed import Direction

EVERY = "every"
"""Begins the kinds of stress that run all values, see ``exhaust``."""


class Subject(Protocol):
    """What the judge needs to know of a target; ``target.live.LiveTarget`` implements it."""

    @property
    def unread(self) -> tuple[str, ...]:
        """Attributes on which nothing may depend, by dotted name; whole numbers."""

    @property
    def cases(self) -> tuple[Case, ...]:
        """All cases of the target."""

    def case(self, name: str) -> Case:
        """Returns the case of that name."""

    def build(self, case: Case, device: str = "cpu") -> torch.nn.Module:
        """Returns a fresh module, equal to every other one built for this case."""

    def inputs(
        self, case: Case, seed: int, sizes: Mapping[str, int] | None = None, device: str = "cpu"
    ) -> Any:
        """Draws the arguments of a call with ``seed``."""

    def bind(self, call: Any) -> dict[str, Any]:
        """Returns the arguments of a call by parameter name."""


@dataclass(frozen=True)
class Probe:
    """One test of a case, with given sizes, inputs and weights."""

    case: str
    sizes: tuple[tuple[str, int], ...]
    seed: int
    stress: str = ""
    """How inputs are changed: a kind of ``stress`` or ``variations``; empty: not at all."""
    perturbed: tuple[str, ...] = ()
    """Float attributes that are set to other values, because the candidate claims to read them."""
    values: str = ""
    """The kind of those values, see ``truth.weights``."""
    state: str = ""
    """Kind of weights, see ``truth.weights``; empty: near those that the module is built with."""
    incoming: str = ""
    """What kind of gradients outputs get, a key of ``gradients.INCOMING``; empty: contiguous, of usual size."""
    weights: int | None = None
    """Seed of the module's weights; None: ``seed``. Probes that share weights are prepared faster."""
    rule: str = "values"
    """Name of the rule that a wrong output at this probe breaks."""
    normalized: bool = False
    """Whether the weights are normalized, see ``weights.normalize``."""
    directed: Direction | None = None
    """In which direction inputs or weights are moved, so that a decision falls the other way."""

    @property
    def stressed(self) -> bool:
        """Whether inputs or weights are such as are seldom seen."""
        return self.rule == "stress" or self.directed is not None

    def describe(self) -> str:
        """Returns the probe in words: ``default-float32, batch=7, seq=13, seed 3, ×0.01 inputs``."""
        parts = [self.case, *(f"{k}={v}" for k, v in self.sizes), f"seed {self.seed}"]
        if self.stress:
            adjective = self.rule == "stress" and not self.stress.startswith(EVERY)
            parts.append(f"{self.stress} inputs" if adjective else f"inputs with {self.stress}")
        if self.perturbed:
            parts.append(f"{self.values} {', '.join(self.perturbed)}")
        if self.directed:
            parts.append(self.directed.describe())
        if self.incoming:
            parts.append(f"{self.incoming} gradients of outputs")
        if kinds := [*["normalized"][: self.normalized], *filter(None, [self.state])]:
            parts.append(f"{', '.join(kinds)} weights")
        return ", ".join(parts)


@dataclass(frozen=True)
class Limits:
    """How large probes may be."""

    elements: int
    """Most elements of an input."""
    row: int
    """Largest size of a dimension whose elements are neighbours in every input, where the others are at their smallest."""


def elements(domain: Domain, sizes: Mapping[str, int]) -> int:
    """Returns the number of elements of the largest input at these sizes."""
    specs = (spec for spec in domain.inputs.values() if isinstance(spec, TensorSpec))
    return max((math.prod(_shape(spec, sizes)) for spec in specs), default=1)


def innermost(domain: Domain) -> set[int | str]:
    """Returns the dimensions whose elements are neighbours in every input: few programs go over many of them."""
    shapes = [spec.shape for spec in domain.inputs.values() if isinstance(spec, TensorSpec)]
    outer = {size for shape in shapes for size in shape[:-1]}
    return {size for shape in shapes for size in shape[-1:]} - outer


def rows(domain: Domain, sizes: Mapping[str, int]) -> int:
    """Returns the number of rows of the largest input: the product of all dimensions but the last."""
    shapes = [_shape(spec, sizes) for spec in domain.inputs.values() if isinstance(spec, TensorSpec)]
    largest = max(shapes, key=math.prod, default=())
    return math.prod(largest[:-1])


def _shape(spec: TensorSpec, sizes: Mapping[str, int]) -> list[int]:
    return [sizes[d] if isinstance(d, str) else d for d in spec.shape]


def fit(case: Case, ranges: Mapping[str, tuple[int, int]], budget: int) -> dict[str, int]:
    """Returns the case's own sizes, the largest halved until the inputs' elements fit ``budget``."""
    sizes = {k: min(max(v, ranges[k][0]), ranges[k][1]) for k, v in case.sizes.items()}
    while elements(case.domain, sizes) > budget:
        shrinkable = [k for k in sizes if sizes[k] > ranges[k][0] and sizes[k] > 1]
        if not shrinkable:
            break
        largest = max(shrinkable, key=lambda k: sizes[k])
        sizes[largest] = max(sizes[largest] // 2, ranges[largest][0])
    return sizes


def smaller(
    case: Case, ranges: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Yields sizes with half the elements of ``sizes``, a quarter, and so on, as far as ``ranges`` allow."""
    now, budget = dict(sizes), elements(case.domain, sizes)
    while True:
        budget //= 2
        fitted = fit(case, ranges, budget)
        if fitted == now:
            return
        yield fitted
        now = fitted
