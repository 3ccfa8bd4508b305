"""What runs of the original gave for some of its leaves, and what is expected of a candidate by that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from kernelllm_judge.policy import Policy
from kernelllm_judge.truth import numerics
from kernelllm_judge.truth.exhaust import read_kind
from kernelllm_judge.truth.numerics import Expected
from kernelllm_judge.truth.otherwise import Mode, Otherwise, collect
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.stress import WHOLE_HALVES
from kernelllm_judge.truth.unsupported import shape_and_kind

Leaves = list[torch.Tensor]


@dataclass(frozen=True)
class Runs:
    """The leaves that each run gave."""

    exact: list[Any] | None
    """Results in float64; None where that is unavailable."""
    nearby: list[Leaves]
    """Results in float64 for slightly perturbed inputs and weights."""
    others: list[tuple[Leaves, Leaves]]
    """Results for nearby inputs, as the original computes them and in float64."""
    otherwise: list[tuple[Mode, Leaves]]
    """Results as other honest implementations might compute them, with the way."""
    jumping: list[list[torch.Tensor | None]] = field(default_factory=list)
    """For each run at inputs with other last digits and each leaf in half precision its ``jumps.errors_of_rows``."""

    def giving(self, count: int) -> Runs:
        """Returns those that gave so many leaves: it may depend on values how many there are."""
        return Runs(
            self.exact,
            [leaves for leaves in self.nearby if len(leaves) == count],
            [pair for pair in self.others if {len(leaves) for leaves in pair} == {count}],
            [(mode, leaves) for mode, leaves in self.otherwise if len(leaves) == count],
            self.jumping,
        )

    def leaves(self, which: slice, others: int) -> Runs:
        """Returns what the runs gave for some of the leaves, with the first so many of ``others``."""
        return Runs(
            self.exact and self.exact[which],
            [leaves[which] for leaves in self.nearby],
            [(leaves[which], exact[which]) for leaves, exact in self.others[:others]],
            [(mode, leaves[which]) for mode, leaves in self.otherwise],
            [errors[which] for errors in self.jumping],
        )

    def expect(
        self, structure: Any, original: Leaves, probe: Probe, policy: Policy, elements: int, note: str
    ) -> Expected:
        """Returns what is expected of a candidate, see ``numerics.expect``."""
        exact, forms = self.exact, forms_of(original)
        if exact is not None and forms_of(exact) != forms:
            exact, note = None, as_it_is("its outputs have other shapes or types in float64") + note
        nearby = [leaves for leaves in self.nearby if exact and forms_of(leaves) == forms]
        all_values = probe.stress == WHOLE_HALVES or read_kind(probe.stress)
        if all_values and exact and numerics.unrounded(original, exact):
            nearby = []  # a step then lies at the same place for every kernel
        otherwise = collect(self.otherwise, exact) if exact else Otherwise()
        return numerics.expect(
            structure,
            original,
            exact,
            [*nearby, *otherwise.nearby],
            policy,
            elements=elements,
            terms=otherwise.terms,
            free=probe.stressed,
            note=note.removeprefix("; "),
            others=[*(self.others if nearby else []), *otherwise.others],
            jumping=self.jumping if nearby else (),
        )


def forms_of(leaves: list[Any]) -> list[Any]:
    """Returns the shapes and kinds of leaves, by which those of runs are compared."""
    return list(map(shape_and_kind, leaves))


def as_it_is(why: str) -> str:
    """Returns the note of what cannot be compared with float64."""
    return f"compared with the original as it is: {why}"
