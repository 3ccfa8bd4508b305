"""What agrees with the original is right, whatever float64 gives."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies as st

from kernelllm_judge.policy import Policy
from kernelllm_judge.truth import numerics
from kernelllm_judge.truth.agreement import agrees
from kernelllm_judge.truth.honest import Evaluation

POLICY = Policy()

SHAPES = ((4, 64), (12, 33), (48, 64), (9, 5), (3,), (20,), (8, 8, 4), (100, 1), (5, 40, 3), (2, 2), (16, 31))


def expect(original, exact, nearby=(), others=()):
    found = [Evaluation([leaf], [truth]) for leaf, truth in others]
    near = [[other] for other in nearby]
    return numerics.expect(None, [original], [exact.clone()], near, POLICY, evaluations=found)


def passes(got, expected):
    return numerics.compare(got, expected, 0, POLICY, None).passed


KINDS: dict[str, Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]] = {
    "ordinary": lambda exact, some, size: exact,
    "zero rows": lambda exact, some, size: torch.where(some[:, :1], 0.0, exact),
    "zero columns": lambda exact, some, size: torch.where(some[:1], 0.0, exact),
    "tiny columns": lambda exact, some, size: torch.where(some[:1], exact / size, exact),
    "large rows": lambda exact, some, size: torch.where(some[:, :1], exact * size, exact),
    "outliers": lambda exact, some, size: torch.where(some, exact * size, exact),
    "equal rows": lambda exact, some, size: exact[:, :1].expand_as(exact).clone(),
    "tiny": lambda exact, some, size: exact * 1e-37,
    "zeros": lambda exact, some, size: exact * 0,
    "steps": lambda exact, some, size: exact.round(),
    "alike": lambda exact, some, size: torch.where(some, size * (1 - 0.003 * exact.sin()), exact * 1e-2),
}
"""What is made of a matrix of random numbers, or of some of its elements."""


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**40),
    shape=st.sampled_from(SHAPES),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]),
    kind=st.sampled_from([*KINDS]),
    sizes=st.tuples(*[st.floats(a, b) for a, b in ((0.5, 6), (-9, -2), (-8, -1), (-8, 3))]),
    perturbed=st.booleans(),
    way=st.sampled_from(["relative", "absolute", "further", "negative", "zero", "single", "column"]),
)
def test_what_agrees_passes_the_comparison(seed, shape, dtype, kind, sizes, perturbed, way) -> None:
    draw = torch.Generator().manual_seed(seed)
    large, own, near, off = (10.0**size for size in sizes)
    noise = [torch.randn(shape, dtype=torch.float64, generator=draw) for _ in range(4)]
    some = torch.rand(shape, generator=draw) < 0.1
    width = shape[-1]
    exact = KINDS[kind](noise[0].reshape(-1, width), some.reshape(-1, width), large).reshape(shape)
    base = exact.abs() + (exact.square().mean().sqrt() + 1e-9 if seed % 2 else 0)
    original = (exact + own * base * noise[1]).to(dtype)
    if not original.isfinite().all():
        return
    nearby = [exact + sign * near * base * noise[2] for sign in (1, -1)] if perturbed else []
    expected = expect(original, exact, nearby)
    wide = original.double()
    single = wide.clone()
    single.reshape(-1)[seed % wide.numel()] += off * wide.abs().max()
    column = wide.clone()
    column[..., seed % width] *= 1 + off
    got = {
        "relative": wide * (1 + off * noise[3]),
        "absolute": wide + off * wide.square().mean().sqrt() * noise[3],
        "further": wide + off * (wide - exact),
        "negative": torch.where(some, -wide, wide),
        "zero": torch.where(some, 0, wide),
        "single": single,
        "column": column,
    }[way].to(dtype)
    assert not agrees(got, original, POLICY) or passes(got, expected)
    # One run in float64 allows less than all that it tells.
    strict = expect(original, exact)
    assert not passes(got, strict) or passes(got, expected)
    other = (exact + 10 * own * base * noise[3]).to(dtype)
    assert not passes(got, strict) or passes(got, expect(original, exact, nearby, [(other, exact)]))


def test_nothing_follows_from_the_scale_of_an_original_that_is_noise() -> None:
    exact = torch.zeros(4, 64, dtype=torch.float64)  # as of the differences of equal numbers
    original = 1e-9 * torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    assert not passes(original + 1e-5, expect(original, exact))
    assert not agrees(original + 1e-5, original, POLICY)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("factor", [-1, 0, 0.5])
def test_differences_that_overflow_are_not_taken_for_none(dtype, factor) -> None:
    exact = torch.empty(4, 64, dtype=torch.float64).uniform_(1.8e38, 3.3e38)
    original = exact.to(dtype)
    got = (exact * factor).to(dtype)
    assert not passes(got, expect(original, exact))
    assert not agrees(got, original, POLICY)


def test_what_is_equal_in_few_digits_alone_hides_no_small_elements() -> None:
    exact = torch.full((4, 64), 1e-2, dtype=torch.float64)
    exact[:, 0], exact[:, 1] = 1002.5, 1001.9  # within 0.1 %, and two different bfloat16 numbers
    original = exact.bfloat16()
    assert original[0, 0] != original[0, 1]
    got = original.clone()
    got[:, 2] = 0.5
    assert not passes(got, expect(original, exact))
    assert not agrees(got, original, POLICY)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64])
@pytest.mark.parametrize("shape", [(4, 0), (0,), (0, 64)])
def test_outputs_without_elements_agree(dtype, shape) -> None:
    empty = torch.empty(shape, dtype=dtype)
    assert agrees(empty, empty, POLICY)
