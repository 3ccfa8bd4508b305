"""Transposed convolutions as matrix products, for float64: a GPU's own library may take ten times as long for these.

On an H100, cuDNN computes KernelBench's problem 1/68 in float64 at 0.4 TFLOPS, and one in two dimensions at 4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

CHUNK = 1 << 24
"""Elements of inputs, products and outputs that are computed at once, of whole samples."""


def convolve_transposed(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """Returns a transposed convolution: for each place in the kernel, a product is added where its elements belong.

    Args:
        inputs: of shape ``(samples, channels, *sizes)``.
        weight: of shape ``(channels, outputs // groups, *kernel)``.
        bias: of shape ``(outputs,)``, or None.
        stride: one for each of the sizes, or one for all; so are the following three.
        padding: rows that are cut off at both ends.
        dilation: distance of places in the kernel.
        output_padding: rows that are added at the end.
        groups: of channels.
    """
    samples, channels, *sizes = inputs.shape
    _, width, *kernel = weight.shape
    stride, padding, dilation, output_padding = (
        list(each) * (len(sizes) if len(each) == 1 else 1)
        for each in (stride, padding, dilation, output_padding)
    )
    geometry = zip(sizes, kernel, stride, padding, dilation, output_padding, strict=True)
    given = [(size - 1) * s - 2 * p + (k - 1) * d + 1 + more for size, k, s, p, d, more in geometry]
    output = inputs.new_zeros(samples, groups, width, *given)
    by_group = weight.reshape(groups, channels // groups, width, *kernel).transpose(1, 2)
    area = math.prod(sizes)
    step = max(1, CHUNK // max(1, channels * area, groups * width * area, groups * width * math.prod(given)))
    for some, target in zip(inputs.split(step), output.split(step), strict=True):
        # All samples are columns of one product for each group, or the weights would be copied for each sample.
        by_channel = some.reshape(len(some), groups, channels // groups, area).permute(1, 2, 0, 3)
        columns = by_channel.reshape(groups, channels // groups, len(some) * area)
        for at in itertools.product(*map(range, kernel)):
            starts = [i * d - p for i, d, p in zip(at, dilation, padding, strict=True)]
            pairs = list(map(_overlap, sizes, given, stride, starts))
            place: tuple[Any, ...] = (..., *at)
            taken: tuple[Any, ...] = (..., *(rows for rows, _ in pairs))
            to: tuple[Any, ...] = (..., *(rows for _, rows in pairs))
            part = torch.bmm(by_group[place], columns).reshape(groups, width, len(some), *sizes)
            target[to] += part.movedim(2, 0)[taken]
    output = output.reshape(samples, groups * width, *given)
    return output if bias is None else output.add_(bias.reshape(-1, *[1] * len(sizes)))


def _overlap(size: int, given: int, stride: int, start: int) -> tuple[slice, slice]:
    """Returns which of ``size`` rows fall into the output, and where: row ``i`` belongs at ``start + i * stride``."""
    first = max(0, -(start // stride))
    end = max(first, min(size, (given - 1 - start) // stride + 1))
    return slice(first, end), slice(first * stride + start, max(0, (end - 1) * stride + start + 1), stride)
