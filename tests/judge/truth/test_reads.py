"""Comparing reads few values of tensors: on a GPU each read waits, most of all where processes share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.agreement import agrees
from kernelllm_judge.truth.honest import Evaluation
from kernelllm_judge.truth.numerics import compare, expect
from kernelllm_judge.truth.slices import equal_to_half

READING = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)


class Reads(TorchDispatchMode):
    """Counts how often a tensor's value is read."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in READING
        return func(*args, **(kwargs or {}))


def reads(call: Callable[[], object]) -> int:
    with Reads() as found:
        call()
    return found.count


@pytest.fixture
def exact() -> torch.Tensor:
    return torch.randn(64, 8, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_two_values_of_an_output_that_agrees_are_read(exact: torch.Tensor) -> None:
    original, got = exact.float(), (exact * (1 + 2e-7)).float()
    assert agrees(got, original, Policy())
    assert reads(lambda: agrees(got, original, Policy())) <= 2
    assert reads(lambda: agrees(original, original.clone(), Policy())) <= 1


def test_no_value_of_slices_that_are_equal_in_half_their_digits_is_read(exact: torch.Tensor) -> None:
    assert reads(lambda: equal_to_half((exact * (1 + 1e-5)).float(), exact.float())) == 0


@pytest.mark.parametrize("chunk", [1 << 24, 400])
def test_bounds_and_a_comparison_read_four_values(exact: torch.Tensor, chunk: int) -> None:
    policy = Policy(chunk_elements=chunk)
    original, others = exact.float(), [Evaluation([(exact * (1 + 1e-6)).float()])]
    found = []

    def derive() -> None:
        found.append(expect(None, [original], [exact], [[exact * (1 + 1e-7)]], policy, evaluations=others))

    assert reads(derive) <= 4
    got = (exact * (1 + 5e-7)).float()
    assert compare(got, found[0], 0, policy, None).passed
    assert reads(lambda: compare(got, found[0], 0, policy, None)) <= 4
