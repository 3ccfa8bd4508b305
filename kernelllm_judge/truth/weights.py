"""Gives a module other parameters, buffers and float attributes, as far as the original accepts them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.eight_bits import computable, narrowed
from kernelllm_judge.truth.acceptance import Unasked
from kernelllm_judge.truth.directed import Direction
from kernelllm_judge.truth.variations import WHOLE

SIGNED = "negative and zero"
"""Kind of weights: signs turned, and zeros."""
SCALES = {"×0.0001": 1e-4, "×10000": 1e4}
"""Kinds of weights: all of them as many times as large."""
WITH_NAN = "NaN"
"""Kind of weights: one NaN in each parameter, or one filter of NaN in a convolution's. Where a single tap of it meets
padding, implementations differ: some multiply NaN with a zero there, others leave it out."""

ACROSS_ONE = "quite different"
"""Kind of attribute values: on the other side of 1, or near where the original accepts no such value…"""
NEGATIVE = "negative"
"""…or of the other sign."""

RAISED = 2.0
"""Added to the biases of batch norms, in standard deviations of what they give. Where `relu` bends such numbers at their mean,
a small difference grows by a fifth in each layer (by the square root of π / (π - 1)), and so do rounding errors: after some
dozens of layers nothing else is left in TF32. Two standard deviations off, it grows by a hundredth."""

Accepts = Callable[[nn.Module], bool]


def change_weights(module: nn.Module, kind: str | Direction, seed: int, accepts: Accepts) -> None:
    """Changes parameters, and unless it is ``WITH_NAN`` buffers as well, in place.

    Raises:
        Unasked: there are none, or the original does not accept them.
    """
    parameters, buffers = _floating(module.parameters()), _floating(module.buffers())
    if isinstance(kind, Direction) and kind.only:
        parameters, buffers = [], [buffer for buffer in module.buffers() if buffer.dtype in WHOLE]
    if not parameters and not (buffers and kind != WITH_NAN):
        raise Unasked
    for chosen in ([*parameters, *buffers], parameters) if kind != WITH_NAN else (parameters,):
        before = [tensor.data for tensor in chosen]
        generator = torch.Generator(before[0].device).manual_seed(seed) if chosen else None
        for tensor in chosen:
            tensor.data = narrowed(_changed(computable(tensor.data), kind, generator), tensor.dtype)
        if chosen and accepts(module):
            return
        for tensor, value in zip(chosen, before, strict=True):
            tensor.data = value
    raise Unasked("the original is not finite, or not exact, with such weights")


def normalize(module: nn.Module, arguments: dict[str, Any], accepts: Accepts) -> None:
    """Gives a deep module weights at which its outputs depend on its inputs, in place.

    With the weights that it is built with, each layer may shrink what differs between inputs, until nothing but biases is
    left of it in the outputs. So each layer's weight is divided by the standard deviation of its outputs over the batch,
    in the order in which they run (layer-sequential unit-variance initialisation, Mishkin and Matas, 2016), and batch norms
    get the means of their inputs, variances of the size of theirs, and larger biases (``RAISED``).

    Args:
        module: a module in evaluation mode.
        arguments: inputs by parameter name, on its device.
        accepts: whether the original accepts such weights.

    Raises:
        Unasked: it has no such layers, or does not accept the weights.
    """
    layers = [
        part
        for part in module.modules()
        if not list(part.children()) and not isinstance(part, torch.jit.ScriptModule)  # which takes no hooks
    ]
    scaled: list[torch.Tensor] = []
    norms = [layer for layer in layers if isinstance(layer, _BatchNorm)]

    def scale(layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
        weight = layer._parameters.get("weight")
        if weight is None or any(weight is other for other in scaled) or not isinstance(output, torch.Tensor):
            return None
        scaled.append(weight)
        if isinstance(layer, _BatchNorm):
            return None  # its outputs have their size already
        center = output.mean(0, keepdim=True) if output.dim() and len(output) > 1 else output.mean()
        spread = float((output - center).square().mean().sqrt())
        if not 0 < spread < math.inf:
            return None
        weight.data = weight.data / spread
        return layer.forward(*inputs, **named)

    tensors = [*module.parameters(), *module.buffers()]
    before = [tensor.data.clone() for tensor in tensors]
    hooks = [layer.register_forward_hook(scale, with_kwargs=True) for layer in layers]
    hooks += [
        norm.register_forward_pre_hook(_standardize, with_kwargs=True)
        for norm in norms
        if norm.running_mean is not None and not norm.training
    ]
    try:
        for norm in norms:
            if norm.affine:
                norm.bias.data = norm.bias.data + RAISED * norm.weight.data.abs()
        with torch.no_grad():
            module(**nested(arguments))
    except torch.OutOfMemoryError:
        raise
    except Exception:  # the user's code may raise anything
        scaled.clear()
    finally:
        for hook in hooks:
            hook.remove()
    if not scaled or not accepts(module):
        for tensor, data in zip(tensors, before, strict=True):
            tensor.data = data
        raise Unasked("the original accepts no normalized weights")


def _standardize(norm: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Fits a batch norm's running statistics to its input, where that has more than one value for each channel.

    Variances keep their proportions and get the size of the input's: the variance of a few values alone, of two samples for
    example, may be tiny by chance, and dividing by it would leave rounding errors as large as what differs between inputs.
    """
    [x] = [*inputs, *named.values()]
    others = [dim for dim in range(x.dim()) if dim != 1]
    variance = x.var(others, correction=0).mean()
    own = norm.running_var.mean()
    if bool((variance > 0) & (own > 0)):
        norm.running_mean.copy_(x.mean(others))
        norm.running_var.mul_(variance / own)


def _floating(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]


def _changed(tensor: torch.Tensor, kind: str | Direction, generator: torch.Generator | None) -> torch.Tensor:
    if isinstance(kind, Direction):
        assert generator is not None
        return kind.moved(tensor, generator)
    if kind in SCALES:
        return tensor * SCALES[kind]
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
    yield 0.4 if abs(own) > 1 else 1.7
    if math.isfinite(own):
        # Twice an epsilon of 1e-6 would not show.
        yield own + 0.05 if abs(own) < 0.01 else own * 1.5
        yield own * 0.5
