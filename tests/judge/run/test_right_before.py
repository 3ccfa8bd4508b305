"""What a timed call gave before and was right is recognised, and nothing else is."""

import math

import pytest
import torch

from kernelllm_judge.run.right_before import RightBefore
from kernelllm_judge.truth.probes import Probe

PROBE = Probe("default", (("n", 3),), 1)
OTHER = Probe("default", (("n", 3),), 2)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex128]
)
def test_equal_bits_are_recognised(dtype):
    given = [torch.tensor([1, 0, 1]).to(dtype), torch.ones((), dtype=dtype)]
    right = RightBefore(1 << 10)
    assert not right.holds(PROBE, given)
    right.keep(PROBE, given, right.copies(given))
    assert right.holds(PROBE, given)
    assert right.holds(PROBE, [t.clone() for t in given])
    assert not right.holds(OTHER, given)
    given[0][1] = 1
    assert not right.holds(PROBE, given)


def test_nan_is_equal_to_itself_and_zero_is_not_to_minus_zero():
    given = [torch.tensor([math.nan, 0.0]).t()]
    right = RightBefore(1 << 10)
    right.keep(PROBE, given, right.copies(given))
    assert right.holds(PROBE, given)
    given[0][1] = -0.0
    assert not right.holds(PROBE, given)


@pytest.mark.parametrize(
    "given",
    [
        torch.ones(6, dtype=torch.complex128)[::2],
        torch.ones(1, dtype=torch.complex64).conj(),
        torch.ones(1).expand(4),
    ],
)
def test_views_are_recognised_as_well(given):
    right = RightBefore(1 << 10)
    right.keep(PROBE, [given], right.copies([given]))
    assert right.holds(PROBE, [given])


def test_what_changes_while_it_is_checked_is_not_kept():
    given = [torch.zeros(4)]
    right = RightBefore(1 << 10)
    copies = right.copies(given)
    given[0][2] = 1
    right.keep(PROBE, given, copies)
    assert not right.holds(PROBE, given)


def test_of_large_outputs_nothing_is_kept():
    given = [torch.zeros(4), torch.zeros(4)]
    right = RightBefore(31)
    right.keep(PROBE, given, right.copies(given))
    assert not right.holds(PROBE, given)
