"""How many bytes of GPU memory a verdict takes, found out without data."""

import pytest
import torch
from test_outputs import Target, of
from torch import nn

from kernelllm_judge.core.records import Case, Domain, TensorSpec
from kernelllm_judge.memory import CallBytes, most
from kernelllm_judge.truth.needs import call_bytes

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
        (of(torch.relu), [ROWS], CallBytes(SIZE, 0, SIZE, SIZE, SIZE, True)),
        (
            of(lambda x: x * torch.sigmoid(x)),
            [ROWS],
            CallBytes(SIZE, 0, SIZE, 2 * SIZE, SIZE, True),
        ),
        (
            of(lambda x: x.view(-1).view_as(x) + 1),
            [ROWS],
            CallBytes(SIZE, 0, SIZE, SIZE, SIZE, True),
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
        assert (call.outputs, call.rows) == (N * 64 * 4, True)


def test_weights_count_once_though_views_of_them_are_made():
    call = call_of(lambda: nn.Linear(4096, 4096), ROWS)
    assert call.state == 4096 * 4097 * 4
    assert call.peak == call.outputs == SIZE


def test_what_does_not_run_without_data_is_taken_to_give_as_much_as_it_gets():
    call = call_of(of(lambda x: x * float(x.max())), ROWS)
    assert call == CallBytes(SIZE, 0, SIZE, SIZE, SIZE, True)


def test_a_small_call_is_not_tried():
    def function(x):
        raise AssertionError("it ran")

    assert call_of(of(function), (64, 64)).inputs == 64 * 64 * 4


@pytest.mark.parametrize("loss", [nn.functional.smooth_l1_loss, nn.functional.binary_cross_entropy])
def test_a_loss_holds_the_errors_of_all_elements_within_one_operation(loss):
    call = call_of(lambda: Two(loss), ROWS, ROWS)
    assert call.peak == SIZE + 4


@pytest.mark.parametrize(("dtype", "times"), [("float64", 1), ("float32", 2), ("bfloat16", 4)])
def test_what_is_narrow_is_so_much_wider_in_float64(dtype, times):
    call = call_of(of(torch.relu), ROWS, dtype=dtype)
    assert call.wider == times


def test_of_several_cases_the_largest_numbers_count():
    one = CallBytes(1, 2, 3, 4, 5, True)
    other = CallBytes(6, 5, 4, 3, 2, False)
    assert most([one, other]) == CallBytes(6, 5, 4, 4, 5, False)
