"""How many bytes of GPU memory a verdict takes, found out without data."""

from dataclasses import replace

import pytest
import torch
from test_outputs import Target, of
from torch import nn

from kernelllm_judge.core.records import Case, Domain, TensorSpec
from kernelllm_judge.memory import OWN, CallBytes, most
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.needs import call_bytes

GIB = 1 << 30
N = 1 << 16
SIZE = N * 4096 * 4
"""Bytes of an input: a GiB, of which nothing is allocated."""


def call_of(build, *shapes, dtype="float32"):
    names = ("x", "y")
    inputs = {name: TensorSpec(dtype, shape) for name, shape in zip(names, shapes, strict=False)}
    case = Case("default", None, Domain(inputs, {}, {"n": (1, N)}), {"n": N})
    drawn = [torch.empty([N if d == "n" else d for d in shape], device="meta") for shape in shapes]
    return call_bytes(Target(build, lambda n: drawn), case, build())


class Two(nn.Module):
    """A function of two inputs."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


ROWS = ("n", 4096)


@pytest.mark.parametrize(
    ("build", "shapes", "expected"),
    [
        (of(torch.relu), [ROWS], CallBytes(SIZE, 0, SIZE, SIZE, SIZE, 4096, True, 4 * 4096)),
        (
            of(lambda x: x * torch.sigmoid(x)),
            [ROWS],
            CallBytes(SIZE, 0, SIZE, 2 * SIZE, SIZE, 4096, True, 4 * 4096),
        ),
        (
            of(lambda x: x.view(-1).view_as(x) + 1),
            [ROWS],
            CallBytes(SIZE, 0, SIZE, SIZE, SIZE, 4096, True, 4 * 4096),
        ),
        (lambda: Two(lambda x, y: x @ y), [ROWS, (4096, 64)], None),
        (lambda: Two(lambda x, y: (x - y).mean()), [ROWS, ROWS], None),
    ],
)
def test_a_run_without_data_counts_what_is_alive_at_once(build, shapes, expected):
    call = call_of(build, *shapes)
    if len(shapes) == 1:
        assert call == expected
    elif shapes[1] == ROWS:
        assert (call.inputs, call.outputs, call.rows) == (2 * SIZE, 4, False)
        assert SIZE <= call.peak <= SIZE + 8
    else:
        assert (call.outputs, call.row, call.rows) == (N * 64 * 4, 4096, True)


def test_weights_count_once_though_views_of_them_are_made():
    call = call_of(lambda: nn.Linear(4096, 4096), ROWS)
    assert call.state == 4096 * 4097 * 4
    assert call.peak == call.outputs == SIZE


def test_what_does_not_run_without_data_is_taken_to_give_as_much_as_it_gets():
    call = call_of(of(lambda x: x * float(x.max())), ROWS)
    assert call == CallBytes(SIZE, 0, SIZE, SIZE, SIZE, 0, True, SIZE)


def test_a_small_call_is_not_tried():
    def function(x):
        raise AssertionError("it ran")

    assert call_of(of(function), (64, 64)).inputs == 64 * 64 * 4


def test_an_elementwise_call_needs_its_input_twice_its_output_and_two_gib_at_least():
    call = call_of(of(torch.relu), ("n", 24576))
    assert call.inputs == 6 * GIB
    assert call.least(Policy(), 24 * GIB) == pytest.approx(3 * 6 * GIB + OWN, rel=0.02)
    assert call.usual() > 24 * GIB > call.least(Policy(), 24 * GIB)


def test_a_loss_needs_its_inputs_twice_and_what_its_call_takes_more_in_float64():
    call = call_of(lambda: Two(lambda x, y: (x - y).mean()), ROWS, ROWS)
    on_cpu, on_gpu = 2 * call.inputs + SIZE + OWN, 3 * call.inputs + 2 * SIZE + OWN
    assert call.least(Policy(), on_cpu) == call.dependent() == pytest.approx(on_cpu, rel=0.01)
    assert call.least(Policy(), 2 * on_gpu) == call.in_float64() == pytest.approx(on_gpu, rel=0.01)


@pytest.mark.parametrize("loss", [nn.functional.smooth_l1_loss, nn.functional.binary_cross_entropy])
def test_a_loss_holds_the_errors_of_all_elements_within_one_operation(loss):
    call = call_of(lambda: Two(loss), ROWS, ROWS)
    assert call.peak == SIZE + 4


@pytest.mark.parametrize(
    ("function", "at_once"),
    [
        (lambda x: (x / x.norm())[None], SIZE),
        (lambda x: (x / x.norm(), x[:9] + 1), SIZE + 9 * 4096 * 4),
        (lambda x: x / x.norm(), 4096 * 4),
    ],
)
def test_outputs_without_equally_many_rows_are_compared_at_once(function, at_once):
    call = call_of(of(function), ROWS)
    assert call.at_once == at_once
    part = replace(call, at_once=0)
    for bytes_of in (CallBytes.in_float64, CallBytes.dependent):
        assert bytes_of(call) - bytes_of(part) == 12 * at_once


@pytest.mark.parametrize(("dtype", "times"), [("float64", 1), ("float32", 2), ("bfloat16", 4)])
def test_what_is_narrow_is_so_much_wider_in_float64(dtype, times):
    call = call_of(of(torch.relu), ROWS, dtype=dtype)
    assert call.wider == times
    assert call.in_float64() == pytest.approx(OWN + (2 + 2 * times) * call.inputs, rel=0.01)


def test_of_several_cases_the_largest_numbers_count():
    one = CallBytes(1, 2, 3, 4, 5, 6, True)
    other = CallBytes(6, 5, 4, 3, 2, 1, False)
    assert most([one, other]) == CallBytes(6, 5, 4, 4, 5, 6, False)
