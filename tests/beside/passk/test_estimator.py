"""The estimator against what it estimates: every choice of k samples, counted."""

from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
from hypothesis import given, strategies as st

from pytest_kernelllm.beside.passk.estimator import mean, pass_at_k


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_it_is_the_share_of_choices_that_hold_a_success(counts):
    n, c, k = counts
    choices = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == sum(map(any, choices)) / len(choices)


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_large_counts_are_exact_to_the_last_place(counts):
    n, c, k = counts
    assert pass_at_k(n, c, k) == float(1 - Fraction(comb(n - c, k), comb(n, k)))


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (20, 0, 20, 0.0),
        (20, 1, 20, 1.0),
        (20, 5, 1, 0.25),
        (10, 3, 5, 11 / 12),
        (4, 4, 1, 1.0),
        (3, 1, 4, None),
    ],
)
def test_figures_worked_out_by_hand(n, c, k, expected):
    assert pass_at_k(n, c, k) == (expected if expected is None else pytest.approx(expected, rel=1e-15))


@pytest.mark.parametrize("counts", [(3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_counts_that_cannot_be_are_refused(counts):
    with pytest.raises(ValueError, match="no such count"):
        pass_at_k(*counts)


def test_a_mean_is_over_all_or_none():
    assert mean([0.5, 0.0]) == 0.25
    assert mean([0.5, None]) is None
    assert mean([]) is None
