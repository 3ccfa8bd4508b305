"""Makes trivial outputs: a probe at which one of them passes cannot tell right from wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from kernelllm_judge.core.eight_bits import computable
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.bounds import ErrorBounds
from kernelllm_judge.truth.numerics import Expected, compare

Leaves = list[torch.Tensor]

BY_CHANCE = 0.005
"""Probability with which outputs at half precision may be right by chance."""


def passing_trivial_output(
    expected: Expected,
    arguments: dict[str, Any],
    other: Leaves | None,
    half: Leaves | None,
    policy: Policy,
    tolerance: float | None,
) -> str | None:
    """Returns the name of a trivial output that would pass, or None.

    For the arguments see ``trivial_outputs``.
    """
    for name, outputs in trivial_outputs(expected, arguments, other, half):
        found = (
            compare(out, expected, i, policy, tolerance, described=False) for i, out in enumerate(outputs)
        )
        if all(difference.passed for difference in found):
            return name
    return None


def trivial_outputs(
    expected: Expected, arguments: dict[str, Any], other: Leaves | None, half: Leaves | None
) -> Iterator[tuple[str, Leaves]]:
    """Yields trivial outputs with their names: zeros, ones, the mean, another input's output…

    Args:
        arguments: the probe's inputs, by parameter name.
        other: the original's outputs for other inputs of the same sizes, if available.
        half: the original's outputs at half precision, for float32 modules.
    """
    originals: tuple[torch.Tensor, ...] = expected.original

    def each(make: Callable[[torch.Tensor], torch.Tensor]) -> Leaves:
        return [make(leaf) for leaf in originals]

    yield "zeros", each(torch.zeros_like)
    yield "ones", each(torch.ones_like)
    if any(leaf.numel() > 1 for leaf in originals):  # a single number is its own mean
        yield "the mean", each(_mean)
    if other is not None and [o.shape for o in other] == [o.shape for o in originals]:
        yield "another input's output", other
        # Of all outputs that ignore the inputs, it is the nearest to both: where bounds are wide, it may pass for both.
        yield (
            "the mean of two inputs' outputs",
            [_between(*pair) for pair in zip(originals, other, strict=True)],
        )
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) and any(leaf.shape == value.shape for leaf in originals):
            yield f"`{name}` passed through", each(partial(_passed, value))
    if half is not None and any(leaf.dtype == torch.float32 for leaf in originals) and _resolved(expected):
        yield (
            "the original at half precision",
            [h.to(o.dtype) for h, o in zip(half, originals, strict=True)],
        )


def _resolved(expected: Expected) -> bool:
    """Whether some leaf shows errors as small as those of half precision.

    What sums hundreds of millions of terms may drift by more than one rounding to half precision, so such an output
    tells constants and stale results from right ones, but no precisions. Nor does a number or two that half precision
    may give by chance.
    """
    eps = torch.finfo(torch.bfloat16).eps
    return any(
        isinstance(b, ErrorBounds) and b.floor < eps / 8 and (2 * b.floor / eps) ** leaf.numel() < BY_CHANCE
        for b, leaf in zip(expected.bounds, expected.original, strict=True)
    )


def _mean(leaf: torch.Tensor) -> torch.Tensor:
    # The mean of finite elements only: with a NaN in it, this output would never pass.
    finite = computable(leaf).isfinite()
    total = torch.where(finite, computable(leaf), 0).sum(dtype=torch.float64)
    return (total / finite.sum().clamp_min(1)).to(leaf.dtype).expand(leaf.shape)


def _between(leaf: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (
        (computable(leaf) / 2 + computable(other) / 2).to(leaf.dtype) if leaf.is_floating_point() else other
    )


def _passed(value: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    return value.to(leaf) if value.shape == leaf.shape else leaf
