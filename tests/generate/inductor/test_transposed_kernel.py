"""Which taps of a transposed convolution an output has, against what PyTorch computes."""

from __future__ import annotations

import itertools

import torch

from pytest_kernelllm.generate.inductor.forms.transposed import Axis

SIZES = list(itertools.product((1, 2, 3, 5), (1, 2, 3, 4, 6), (0, 1, 4)))


def axes() -> list[tuple[Axis, int, int]]:
    """Returns axes, with how many inputs and outputs they have."""
    made = []
    for (kernel, stride, padding), inputs, more in itertools.product(SIZES, (1, 4), (0, 1)):
        outputs = (inputs - 1) * stride - 2 * padding + kernel + more
        if outputs > 0 and more < stride:
            made.append((Axis("W", kernel, stride, padding), inputs, outputs))
    return made


AXES = axes()


def test_taps_give_what_pytorch_computes() -> None:
    for axis, inputs, outputs in AXES:
        x, weight = torch.arange(1.0, inputs + 1), 10.0 ** torch.arange(axis.kernel)
        more = outputs - ((inputs - 1) * axis.stride - 2 * axis.padding + axis.kernel)
        expected = torch.nn.functional.conv_transpose1d(
            x[None, None],
            weight[None, None],
            stride=axis.stride,
            padding=axis.padding,
            output_padding=more,
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
