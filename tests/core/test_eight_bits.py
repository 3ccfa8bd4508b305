"""Floats of 8 bits: what PyTorch cannot compute with, and how far two are apart."""

import math

import pytest
import torch

from kernelllm_judge.core.eight_bits import computable, has_eight_bits, narrowed, steps
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.numerics import compare, expect

FORMATS = [torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_steps_grow_by_one_with_each_value(dtype: torch.dtype) -> None:
    values = torch.arange(256, dtype=torch.uint8).view(dtype)
    finite = values[values.float().isfinite()].float().unique()  # with one zero
    assert (steps(finite.to(dtype)).diff() == 1).all()
    assert steps(torch.tensor([math.nan]).to(dtype)) > steps(finite[-1:].to(dtype)) + 1


def test_what_is_too_large_becomes_the_largest() -> None:
    found = narrowed(torch.tensor([1e9, -1e9, math.nan]), torch.float8_e4m3fn).float()
    assert found[:2].tolist() == [448.0, -448.0] and found[2].isnan()


def test_other_tensors_stay_as_they_are() -> None:
    half = torch.ones(2, dtype=torch.float16)
    assert computable(half) is half and not has_eight_bits(torch.uint8)


def checked(got: torch.Tensor, original: torch.Tensor) -> bool:
    expected = expect(None, [original], [original], [], Policy())
    return compare(got, expected, 0, Policy(), None).passed


def test_rounding_may_put_a_few_elements_one_step_off() -> None:
    torch.manual_seed(0)
    right = torch.randn(32, 64)
    original = right.to(torch.float8_e4m3fn)
    codes = original.view(torch.uint8)
    one, two, many = codes.clone(), codes.clone(), codes.clone()
    one[3, 5] ^= 1
    two[3, 5] ^= 2
    many[:16] ^= 1
    assert checked(original, original)
    assert checked(one.view(original.dtype), original)
    assert not checked(two.view(original.dtype), original)
    assert not checked(many.view(original.dtype), original)


def test_nan_must_be_where_it_is_and_zeros_are_alike() -> None:
    original = torch.tensor([0.0, math.nan, 1.0] * 11).to(torch.float8_e4m3fn)
    assert checked(torch.where(original.float() == 0, -0.0, original.float()).to(original.dtype), original)
    assert not checked(original.float().nan_to_num(448.0).to(original.dtype), original)


def test_values_that_honest_evaluations_give_are_right_too() -> None:
    original, near = (torch.full((8,), value).to(torch.float8_e4m3fn) for value in (1.0, 2.0))
    expected = expect(None, [original], [original], [[near]], Policy())
    assert compare(near, expected, 0, Policy(), None).passed
    between = torch.full((8,), 1.5).to(torch.float8_e4m3fn)
    assert not compare(between, expected, 0, Policy(), None).passed
