"""Which taps of a transposed convolution an output has, against what PyTorch computes."""

from __future__ import annotations

import itertools

import pytest
import torch

from pytest_kernelllm.generate.inductor.transposed_kernel import Axis

SIZES = list(itertools.product((1, 2, 3, 5), (1, 2, 3, 4, 6), (0, 1, 4), (1, 2, 3, 4)))


def axes() -> list[tuple[Axis, int, int]]:
    """Returns axes, with how many inputs and outputs they have."""
    made = []
    for (kernel, stride, padding, dilation), inputs, more in itertools.product(SIZES, (1, 4), (0, 1)):
        outputs = (inputs - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1
        if outputs > 0 and more < max(stride, dilation):
            made.append((Axis("W", kernel, stride, padding, dilation), inputs, outputs))
    return made


AXES = axes()


def test_taps_give_what_pytorch_computes() -> None:
    for axis, inputs, outputs in AXES:
        x, weight = torch.arange(1.0, inputs + 1), 10.0 ** torch.arange(axis.kernel)
        more = outputs - (
            (inputs - 1) * axis.stride - 2 * axis.padding + axis.dilation * (axis.kernel - 1) + 1
        )
        expected = torch.nn.functional.conv_transpose1d(
            x[None, None],
            weight[None, None],
            stride=axis.stride,
            padding=axis.padding,
            output_padding=more,
            dilation=axis.dilation,
        )
        read = [{t: n for t, n in axis.taps(output).items() if 0 <= n < inputs} for output in range(outputs)]
        found = [sum(float(x[n] * weight[t]) for t, n in taps.items()) for taps in read]
        assert found == expected.flatten().tolist(), axis


def test_which_axes_leave_outputs_out_that_have_taps() -> None:
    left = []
    for axis, inputs, outputs in AXES:
        taps = [axis.taps(output).values() for output in range(outputs)]
        left.append(any(found and not any(0 <= n < inputs for n in found) for found in taps))
        assert axis.leaves_out(inputs, outputs) == left[-1], axis
    assert {True, False} == set(left)


@pytest.mark.parametrize(
    ("stride", "dilation", "together"),
    [(1, 1, True), (2, 1, True), (4, 1, True), (3, 1, False), (8, 1, False), (2, 2, False)],
)
def test_few_remainders_are_computed_together(stride: int, dilation: int, together: bool) -> None:
    assert Axis("W", 3, stride, 1, dilation).together is together
