"""Gives a module other parameters, buffers and float attributes, as far as the original accepts them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from pytest_kernelllm.judge.reference.acceptance import Unasked

SIGNED = "negative and zero"
"""Kind of weights: signs turned, and zeros."""
WITH_NAN = "NaN"
"""Kind of weights: one NaN in each parameter, or one filter of NaN in a convolution's. Where a single tap of it meets
padding, implementations differ: some multiply NaN with a zero there, others leave it out."""

OTHER = "other"
"""Kind of attribute values: near the module's own, but different enough to matter…"""
ACROSS_ONE = "quite different"
"""…on the other side of 1, or near where the original accepts no such value…"""
NEGATIVE = "negative"
"""…or of the other sign."""

Accepts = Callable[[nn.Module], bool]


def change_weights(module: nn.Module, kind: str, seed: int, accepts: Accepts) -> None:
    """Changes parameters, and for ``SIGNED`` buffers as well, in place.

    Raises:
        Unasked: there are none, or the original does not accept them.
    """
    parameters, buffers = _floating(module.parameters()), _floating(module.buffers())
    if not parameters and not (buffers and kind == SIGNED):
        raise Unasked
    if not accepts(module):
        raise Unasked("the original is not exact with any weights")
    for chosen in ([*parameters, *buffers], parameters) if kind == SIGNED else (parameters,):
        before = [tensor.data for tensor in chosen]
        generator = torch.Generator(before[0].device).manual_seed(seed) if chosen else None
        for tensor in chosen:
            tensor.data = _changed(tensor.data, kind, generator)
        if chosen and accepts(module):
            return
        for tensor, value in zip(chosen, before, strict=True):
            tensor.data = value
    raise Unasked("the original is not finite, or not exact, with such weights")


def _floating(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]


def _changed(tensor: torch.Tensor, kind: str, generator: torch.Generator | None) -> torch.Tensor:
    draw = torch.rand(tensor.shape, generator=generator, device=tensor.device)
    if kind == WITH_NAN:
        planted = tensor.clone(memory_format=torch.contiguous_format)
        taps = math.prod(tensor.shape[2:])
        planted.view(-1, taps)[int(draw.argmax()) // taps] = math.nan
        return planted
    draw.view(-1)[int(draw.argmin())] = 0.0  # some element is negative, whatever is drawn
    return tensor * torch.where(draw < 0.5, -1.3, torch.where(draw < 0.6, 0.0, 0.8)).to(tensor.dtype)


def change_attributes(module: nn.Module, names: tuple[str, ...], kind: str, accepts: Accepts) -> None:
    """Sets float attributes to values of a kind. One for which the original accepts none stays as it is.

    Raises:
        Unasked: every attribute stays.
        ValueError: the kind is ``ACROSS_ONE`` and an attribute stays, so nothing shows that a kernel reads it.
    """
    accepts(module)  # what is usual is what it does with its own values
    kept = []
    for name in names:
        owner, _, attribute = name.rpartition(".")
        holder: Any = operator.attrgetter(owner)(module) if owner else module
        own = getattr(holder, attribute)
        for value in _values(own, kind):
            setattr(holder, attribute, value)
            if accepts(module):
                break
        else:
            setattr(holder, attribute, own)
            kept.append(name)
    if kept and kind == ACROSS_ONE:
        raise ValueError(f"it accepts no other value of `{kept[0]}`, which the candidate claims to read")
    if len(kept) == len(names):
        raise Unasked(f"the original accepts no such value of {', '.join(names)}")


def _values(own: float, kind: str) -> Iterator[float]:
    if kind == NEGATIVE:
        yield -own if own and math.isfinite(own) else -0.3
        return
    if kind == ACROSS_ONE:
        yield 0.4 if abs(own) > 1 else 1.7
    if math.isfinite(own):
        # Twice an epsilon of 1e-6 would not show.
        yield own + 0.05 if abs(own) < 0.01 else own * 1.5
        yield own * 0.5
