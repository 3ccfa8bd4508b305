"""How wrong is an output: error against float64, relative to the error that the original itself makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pytest_kernelllm.judge.policy import Policy


@dataclass(frozen=True)
class Expected:
    """What one probe's outputs must be. Leaves are tensors on the judge's device, or plain values."""

    structure: Any
    original: tuple[Any, ...]
    """As the original computes them."""
    exact: tuple[Any, ...]
    """In float64, same shapes; the original itself where it is not floating."""
    conditioning: tuple[float, ...]
    """How far each output moves, relative to its scale, when inputs move in their last places."""


@dataclass(frozen=True)
class Difference:
    """The comparison of one output leaf."""

    passed: bool
    measured: float
    allowed: float
    detail: str = ""


def compare(
    got: torch.Tensor, expected: Expected, leaf: int, policy: Policy, tolerance: float | None
) -> Difference:
    """Judge one output tensor.

    Floating outputs: both the largest and the root-mean-square deviation from float64, relative to the output's
    scale, must stay within a multiple of the original's own. NaN and infinities must stand where the original has
    them. Integers and booleans must be equal.

    Args:
        got: same shape and dtype as the original's output.
        expected: the probe's truth.
        leaf: which output.
        policy: thresholds.
        tolerance: the marker's override for the allowed relative error.
    """
    original, exact = expected.original[leaf], expected.exact[leaf]
    if not original.is_floating_point():
        wrong = got != original
        count = int(wrong.sum())
        return Difference(count == 0, float(count), 0.0, _where(wrong, got, original) if count else "")
    finite = original.isfinite()
    # Where the original overflows and the exact result would not, the original is no example to follow.
    overflowed = ~finite & exact.isfinite() & (exact.abs() <= torch.finfo(original.dtype).max)
    same = (got == original) | (got.isnan() & original.isnan())
    misplaced = ~torch.where(finite, got.isfinite(), same | overflowed)
    if bool(misplaced.any()):
        return Difference(False, float("inf"), 0.0, _where(misplaced, got, original))
    truth = torch.where(finite, exact, 0.0)
    scale = truth.square().mean().sqrt()
    error, largest = _error(got, truth, finite, scale)
    own, own_largest = _error(original, truth, finite, scale)
    single = got.dtype in (torch.float32, torch.float64)
    floor = (policy.single_eps if single else policy.half_eps) * torch.finfo(got.dtype).eps
    excused = min(expected.conditioning[leaf], policy.conditioning_cap)
    allowed = max(policy.own_error_factor * own_largest, floor, excused)
    allowed_rms = max(policy.own_error_factor * own, floor, excused)
    if tolerance is not None:
        allowed = allowed_rms = tolerance
    if largest <= allowed and error <= allowed_rms:
        return Difference(True, largest, allowed)
    deviation = (got.double() - truth).abs()
    worst = torch.where(finite, deviation, 0.0)
    return Difference(False, largest, allowed, _where(worst == worst.max(), got, truth))


def conditioning(exact: tuple[Any, ...], moved: tuple[Any, ...]) -> tuple[float, ...]:
    """Largest movement of each floating leaf between two float64 runs, relative to its scale."""
    out = []
    for a, b in zip(exact, moved, strict=True):
        if not (isinstance(a, torch.Tensor) and a.is_floating_point()):
            out.append(0.0)
            continue
        finite = a.isfinite() & b.isfinite()
        truth = torch.where(finite, a, 0.0)
        out.append(_error(b, truth, finite, truth.square().mean().sqrt())[1])
    return tuple(out)


def impostors(
    expected: Expected, arguments: dict[str, Any], other: list[Any], half: list[Any] | None
) -> Iterator[tuple[str, list[Any]]]:
    """Outputs that a lazy or cheating candidate could write, each with its name.

    A probe that would let one of them through proves nothing.

    Args:
        expected: the probe's truth.
        arguments: its inputs.
        other: the original's outputs for other inputs of the same sizes.
        half: its outputs at half precision, for float32 modules.
    """
    tensors = [i for i, leaf in enumerate(expected.original) if isinstance(leaf, torch.Tensor)]

    def each(make: Any) -> list[Any]:
        return [make(leaf) if i in tensors else leaf for i, leaf in enumerate(expected.original)]

    yield "zeros", each(torch.zeros_like)
    yield "ones", each(torch.ones_like)
    if any(expected.original[i].numel() > 1 for i in tensors):  # a single number is its own mean
        yield "the mean", each(lambda t: t.double().mean().to(t.dtype).expand(t.shape) if t.numel() else t)
    if all(a.shape == b.shape for a, b in zip(expected.original, other, strict=True)):
        yield "another input's output", other
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) and any(
            expected.original[i].shape == value.shape for i in tensors
        ):
            yield (
                f"`{name}` passed through",
                each(lambda t, value=value: value.to(t.dtype) if t.shape == value.shape else t),
            )
    if half is not None and any(expected.original[i].dtype == torch.float32 for i in tensors):
        yield (
            "the original at half precision",
            [
                h.to(o.dtype) if isinstance(o, torch.Tensor) else o
                for h, o in zip(half, expected.original, strict=True)
            ],
        )


def _error(
    value: torch.Tensor, truth: torch.Tensor, finite: torch.Tensor, scale: torch.Tensor
) -> tuple[float, float]:
    """Root-mean-square and largest error, relative to the truth's scale. Both 0 for empty tensors."""
    if truth.numel() == 0:
        return 0.0, 0.0
    tiny = torch.finfo(torch.float64).tiny
    deviation = torch.where(finite, (value.double() - truth).abs(), 0.0)
    rms = deviation.square().mean().sqrt() / scale.clamp_min(tiny)
    largest = (deviation / (truth.abs() + scale).clamp_min(tiny)).max()
    return float(rms), float(largest)


def _where(mask: torch.Tensor, got: torch.Tensor, wanted: torch.Tensor) -> str:
    """The first place of ``mask``, in words."""
    flat = int(mask.reshape(-1).to(torch.uint8).argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(flat), mask.shape)]
    return (
        f"at {index}: expected {wanted.reshape(-1)[flat].item():.9g}, got {got.reshape(-1)[flat].item():.9g}"
    )
