"""Drawing tokens, against the warpers of transformers."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.local.draw import draw, uniforms
from pytest_kernelllm.models.protocol import Sampling

JUST_BELOW_1 = 1 - 2**-24


def warped(logits, sampling):
    """Probabilities that transformers would draw from."""
    warpers = [TemperatureLogitsWarper(sampling.temperature)]
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    for warper in warpers:
        logits = warper(None, logits)
    return logits.softmax(-1)


def drawn(logits, sampling, steps=20_000):
    """How often each token is drawn, over an even grid of numbers."""
    numbers = (torch.arange(steps) + 0.5) / steps
    tokens = draw(logits.expand(steps, -1), numbers, sampling)
    return torch.bincount(tokens, minlength=logits.shape[-1]) / steps


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 40),
    spread=st.sampled_from([0.1, 1.0, 3.0]),
    temperature=st.sampled_from([0.3, 0.6, 1.0, 1.7]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.97, 1.0]),
    top_k=st.sampled_from([0, 1, 2, 7, 100]),
)
def test_tokens_are_drawn_as_often_as_transformers_would(seed, size, spread, temperature, top_p, top_k):
    logits = torch.randn(1, size, generator=torch.Generator().manual_seed(seed)) * spread
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k)
    expected, got = warped(logits, sampling)[0], drawn(logits, sampling)
    reachable = expected > 1e-3  # coarser than the grid
    assert not (got[expected == 0] > 0).any()
    assert (got[reachable] > 0).all()
    torch.testing.assert_close(got, expected, atol=2e-4, rtol=0)


def test_equal_logits_at_the_edge_of_top_k_all_count_as_in_transformers():
    logits = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]])
    sampling = Sampling(top_p=1.0, top_k=2)
    got = drawn(logits, sampling)
    torch.testing.assert_close(got, warped(logits, sampling)[0], atol=2e-4, rtol=0)
    assert (got > 0).tolist() == [True, True, True, True, False]


def test_equal_logits_are_taken_by_token_id():
    logits = torch.zeros(1, 1000)
    tokens = draw(logits.expand(1000, -1), (torch.arange(1000) + 0.5) / 1000, Sampling(top_p=1.0))
    assert tokens.tolist() == list(range(1000))
    assert draw(logits, torch.zeros(1), Sampling(temperature=0)).tolist() == [0]
    halves = draw(torch.zeros(2, 2), torch.tensor([0.5 - 2**-25, 0.5]), Sampling(top_p=1.0))
    assert halves.tolist() == [0, 1]


def test_at_temperature_0_the_likeliest_token_is_taken_whatever_the_number():
    logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, 3.0, 1.0]])
    for number in (0.0, 0.5, JUST_BELOW_1):
        assert draw(logits, torch.full((2,), number), Sampling(temperature=0)).tolist() == [1, 0]


@pytest.mark.parametrize("top_p", [1.0, 0.97, 0.3])
@pytest.mark.parametrize("top_k", [0, 3])
def test_the_smallest_and_the_largest_number_draw_tokens_that_count(top_p, top_k):
    generator = torch.Generator().manual_seed(0)
    sampling = Sampling(top_p=top_p, top_k=top_k)
    for size in (1, 2, 5, 50_000):
        logits = torch.randn(1, size, generator=generator)
        logits[:, size // 2 + 1 :] = -math.inf
        first, last = draw(logits.expand(2, -1), torch.tensor([0.0, JUST_BELOW_1]), sampling).tolist()
        probabilities = warped(logits, sampling)[0]
        assert first == probabilities.argmax()
        assert probabilities[last] > 0


def test_tokens_without_probability_are_never_drawn():
    logits = torch.full((1, 64), -math.inf)
    logits[0, [5, 9]] = torch.tensor([0.0, 0.0])
    got = drawn(logits, Sampling(top_p=1.0))
    assert got[5] == got[9] == 0.5


def test_a_tiny_top_p_leaves_the_likeliest_token():
    got = drawn(torch.tensor([[0.0, 0.1, 0.0]]), Sampling(top_p=1e-9))
    assert got.tolist() == [0, 1, 0]


def test_logits_that_are_not_numbers_draw_some_token_and_break_nothing():
    tokens = draw(torch.full((3, 10), math.nan), torch.tensor([0.0, 0.5, JUST_BELOW_1]), Sampling())
    assert all(0 <= token < 10 for token in tokens.tolist())


def test_a_row_is_drawn_the_same_alone_and_among_others():
    generator = torch.Generator().manual_seed(1)
    logits, numbers = torch.randn(32, 5000, generator=generator), torch.rand(32, generator=generator)
    together = draw(logits, numbers, Sampling())
    alone = [draw(logits[i : i + 1], numbers[i : i + 1], Sampling()) for i in range(32)]
    assert torch.equal(together, torch.cat(alone))


def test_a_samples_numbers_are_its_own():
    first = uniforms(0, "prompt", 0, 50)
    assert torch.equal(first, uniforms(0, "prompt", 0, 50))
    others = [uniforms(1, "prompt", 0, 50), uniforms(0, "prompt ", 0, 50), uniforms(0, "prompt", 1, 50)]
    assert not any(torch.equal(first, other) for other in others)
    assert first.dtype == torch.float32 and first.min() >= 0 and first.max() < 1
    many = uniforms(0, "prompt", 0, 100_000)
    assert abs(many.mean() - 0.5) < 0.005


def test_a_larger_limit_continues_a_samples_numbers():
    long = uniforms(3, "prompt", 7, 4096)
    for count in (1, 2, 7, 8, 15, 16, 17, 63, 64, 1000, 2048):
        assert torch.equal(uniforms(3, "prompt", 7, count), long[:count])


def test_numbers_do_not_depend_on_the_default_dtype():
    expected = uniforms(0, "prompt", 0, 8)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(uniforms(0, "prompt", 0, 8), expected)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"temperature": -1.0}, "`temperature` cannot be -1.0; it must be at least 0."),
        ({"temperature": math.nan}, "`temperature` cannot be nan; it must be at least 0."),
        ({"top_p": 0.0}, "`top_p` cannot be 0.0; it must be more than 0 and at most 1."),
        ({"top_p": 1.01}, "`top_p` cannot be 1.01; it must be more than 0 and at most 1."),
        ({"top_k": -1}, "`top_k` cannot be -1; it must be at least 0."),
        ({"max_new_tokens": 0}, "`max_new_tokens` cannot be 0; it must be at least 1."),
    ],
)
def test_invalid_sampling_is_one_sentence(value, message):
    with pytest.raises(GenerateError) as error:
        Sampling(**value)
    assert str(error.value) == message
