"""Comparing asks little of tensors' values: on a GPU each question waits, most of all where processes share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.reference.numerics import agrees, compare, expect
from pytest_kernelllm.judge.reference.slices import equal_to_half

READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)


class Questions(TorchDispatchMode):
    """Counts how often a tensor's value is read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.asked += func in READS
        return func(*args, **(kwargs or {}))


def asked(call: Callable[[], object]) -> int:
    with Questions() as questions:
        call()
    return questions.asked


@pytest.fixture
def exact() -> torch.Tensor:
    return torch.randn(64, 8, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_an_output_that_agrees_is_asked_four_times(exact: torch.Tensor) -> None:
    original, got = exact.float(), (exact + 5e-7).float()
    assert agrees(got, original, Policy())
    assert asked(lambda: agrees(got, original, Policy())) <= 4
    assert asked(lambda: agrees(original, original.clone(), Policy())) == 1


def test_slices_that_are_equal_in_half_their_digits_are_asked_twice(exact: torch.Tensor) -> None:
    assert asked(lambda: equal_to_half((exact * (1 + 1e-5)).float(), exact.float())) <= 2


def test_bounds_and_a_comparison_ask_for_every_chunk_few_times(exact: torch.Tensor) -> None:
    original, others = exact.float(), [([(exact * (1 + 1e-6)).float()], [exact])]
    found = []

    def derive() -> None:
        found.append(expect(None, [original], [exact], [[exact * (1 + 1e-7)]], Policy(), others=others))

    assert asked(derive) <= 4
    got = (exact * (1 + 5e-7)).float()
    assert compare(got, found[0], 0, Policy(), None).passed
    assert asked(lambda: compare(got, found[0], 0, Policy(), None)) <= 4
