"""Rounding that the original's own errors and one perturbation show by chance alone is allowed all the same."""

import pytest
import torch
from test_outputs import references
from torch import nn

from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.numerics import compare
from kernelllm_judge.truth.probes import Probe

POLICY = Policy()


class Excited(nn.Module):
    """Scales each channel by a factor from the means of all channels, as squeeze-and-excitation does."""

    def __init__(self) -> None:
        super().__init__()
        self.squeeze = nn.Linear(64, 16, bias=False)
        self.excite = nn.Linear(16, 64, bias=False)

    def forward(self, x):
        means = x.mean((2, 3))
        factors = torch.sigmoid(self.excite(nn.functional.silu(self.squeeze(means))))
        return x * factors[:, :, None, None]


def added(terms):
    """The sum over the last dimension, one term after the other, as a kernel's loop adds it up."""
    total = torch.zeros_like(terms[..., 0])
    for term in terms.unbind(-1):
        total = total + term
    return total


def in_loops(module, x, dtype=torch.float32):
    """The module's output with all sums added up in loops, which have this precision."""
    means = added(x.flatten(2).to(dtype)) / 64
    hidden = added(means[:, None, :] * module.squeeze.weight.to(dtype))
    scores = added((hidden * torch.sigmoid(hidden))[:, None, :] * module.excite.weight.to(dtype))
    return x * torch.sigmoid(scores).float()[:, :, None, None]


@pytest.fixture(scope="module")
def prepared():
    target = references(Excited, lambda n: torch.randn(n, 64, 8, 8), POLICY)
    return [
        target.prepare(Probe("default", (("n", 2),), seed, stress="shifted", rule="stress"))
        for seed in range(24)
    ]


def passes(got, probe):
    right = compare(got, probe.expected, 0, POLICY, None).passed
    return right or compare(got, probe.closely()[0], 0, POLICY, None).passed


def test_a_factor_that_a_row_shares_may_be_rounded_as_loops_round(prepared):
    refused = [p.probe.seed for p in prepared if not passes(in_loops(p.module, p.arguments["x"]), p)]
    assert refused == []


def test_and_no_more_than_that(prepared):
    for probe in prepared:
        assert not passes(in_loops(probe.module, probe.arguments["x"], torch.bfloat16), probe)
        once_more = in_loops(probe.module, probe.arguments["x"]) * (1 + 1e-3)
        assert not passes(once_more, probe)


class Counted(nn.Module):
    """Keeps the running mean of what it subtracts: ill-conditioned where its inputs are far from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x):
        self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return x * 2


def test_updated_buffers_have_bounds_of_their_own():
    target = references(Counted, lambda n: torch.randn(n, 64), POLICY)
    prepared = target.prepare(Probe("default", (("n", 8),), 1))
    [output], [update] = prepared.expected.bounds, prepared.updates.expected.bounds
    assert output.sensitivity.shape == (8, 64)
    assert update.sensitivity.numel() == 64
    assert update.sensitivity.min() > 0


class Decayed(nn.Module):
    """What is left at each step of a decay: a difference of running sums, which lose digits as they grow."""

    def forward(self, x):
        sums = x.cumsum(-1)
        return torch.exp(sums - sums[..., -1:])


def in_a_tree(x):
    """Running sums as a GPU computes them, each from two sums of half as many terms (Kogge and Stone, 1973)."""
    distance = 1
    while distance < x.shape[-1]:
        x = torch.cat([x[..., :distance], x[..., distance:] + x[..., :-distance]], -1)
        distance *= 2
    return x


def test_what_running_sums_lose_in_another_order_may_be_lost():
    target = references(Decayed, lambda n: torch.randn(n, 256), POLICY)
    for seed in range(40):
        prepared = target.prepare(Probe("default", (("n", 6),), seed, stress="mixed-row", rule="stress"))
        sums = in_a_tree(prepared.arguments["x"])
        decayed = torch.exp(sums - sums[..., -1:])
        assert passes(decayed, prepared), seed
        assert not passes(decayed * (1 + 1e-4), prepared), seed


class Peaks(nn.Module):
    """Tells by equality: what perturbed the largest element, but not the row, would find no peaks at all."""

    def forward(self, x):
        return (x == x.amax(-1, keepdim=True)).float()


def test_what_is_only_handed_on_is_compared_as_it_is():
    target = references(Peaks, lambda n: torch.randn(n, 64), POLICY)
    for seed in range(8):
        prepared = target.prepare(Probe("default", (("n", 6),), seed, rule="values"))
        assert not passes(torch.zeros(6, 64), prepared)


class Masked(nn.Module):
    """Scores beside a mask's large fill."""

    def forward(self, x):
        far = torch.arange(x.shape[-1]) >= 48
        return 30 * torch.tanh(x / 30) + far * -1e9


def test_a_masks_fill_allows_no_errors_beside_it():
    target = references(Masked, lambda n: 20 * torch.randn(n, 64), POLICY)
    for seed in range(8):
        prepared = target.prepare(Probe("default", (("n", 6),), seed, rule="values"))
        x = prepared.arguments["x"]
        assert passes(Masked()(x), prepared)
        assert not passes(x.clamp(-30, 30) + (torch.arange(64) >= 48) * -1e9, prepared)
