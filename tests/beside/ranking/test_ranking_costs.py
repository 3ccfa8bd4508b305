"""What a call is predicted to take, by hand-counted bytes and FLOPs."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernelllm_judge.timing.roofline import Roofline
from pytest_kernelllm import rank
from pytest_kernelllm.beside.ranking.costs import costs
from pytest_kernelllm.beside.ranking.trace import record

ROOFLINE = Roofline(1000.0, {"float32": 1e6, "bfloat16": 1e6}, 0)
"""A byte takes 1 ns, a FLOP 1 ps."""
N = 64 * 128
FLOAT = 4


def cost_of(module, *args, **kwargs):
    """The cost of a call as a whole."""
    return costs(record(module, lambda: module(*args, **kwargs)), ROOFLINE).whole


class Chain(nn.Module):
    def forward(self, x):
        return torch.tanh(x.sigmoid() * x).transpose(0, 1).reshape(-1)


class Gated(nn.Module):
    """The light operations are interleaved with the projections."""

    def __init__(self):
        super().__init__()
        self.gate, self.up, self.act = nn.Linear(128, 128), nn.Linear(128, 128), nn.SiLU()

    def forward(self, x):
        return self.act(self.gate(x)) * self.up(x)


def test_each_operation_alone_and_all_fused_move_what_was_counted_by_hand():
    cost = cost_of(Chain(), torch.randn(64, 128))
    # sigmoid 2, product 3, tanh 2, the copy of the transposed 2; fused: one read, one write.
    assert (cost.operations, cost.bytes, cost.fused_bytes) == (4, 9 * N * FLOAT, 2 * N * FLOAT)
    assert cost.microseconds == pytest.approx(9 * N * FLOAT / 1000)
    assert cost.headroom == pytest.approx(7 * N * FLOAT / 1000)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_model_on_the_cpu_and_one_without_data_cost_the_same(device):
    with torch.device(device):
        found = rank(Gated(), torch.randn(64, 128))
    expected = cost_of(Gated(), torch.randn(64, 128))
    (whole,) = (row for row in found.modules if row.cls.endswith("Gated"))
    assert (whole.bytes, whole.fused_bytes, whole.flops) == (
        expected.bytes,
        expected.fused_bytes,
        2 * 2 * 64 * 128 * 128,
    )


def test_a_matrix_multiplication_has_no_headroom():
    cost = cost_of(nn.Linear(128, 128, bias=False), torch.randn(64, 128))
    assert cost.headroom == 0
    assert cost.microseconds == pytest.approx(
        max(2 * 64 * 128 * 128 / 1e6, (2 * N + 128 * 128) * FLOAT / 1000)
    )


def test_operations_are_fused_across_others_that_lie_between_them_in_time_only():
    module = Gated()
    trace = record(module, lambda: module(torch.randn(64, 128)))
    known = costs(trace, ROOFLINE)
    by_path = {call.path: (known.calls[i], known.own[i]) for i, call in enumerate(trace.calls)}
    whole, own = by_path[""]
    # SiLU writes what the product reads again: one write and one read less.
    assert own.headroom == whole.headroom == pytest.approx(2 * N * FLOAT / 1000)
    assert by_path["act"][0].headroom == 0


def test_a_heavy_operation_between_them_keeps_operations_apart():
    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.middle = nn.Linear(128, 128, bias=False)

        def forward(self, x):
            return self.middle(x.relu()) + x  # x must be read again

    assert cost_of(Apart(), torch.randn(64, 128)).headroom == 0


def test_what_rows_can_save_beyond_their_parts_adds_up_to_the_whole():
    model = nn.Sequential(Gated(), Gated(), Chain())
    found = rank(model, torch.randn(64, 128))
    assert sum(row.own_headroom_ms for row in found.modules) == pytest.approx(found.headroom_ms)
    assert sum(row.own_ms for row in found.modules) == pytest.approx(found.ms)
    gated = next(row for row in found.modules if row.cls.endswith("Gated"))
    assert (gated.calls, gated.paths) == (2, ("*",))


def test_lookups_read_their_rows_and_not_the_table():
    cost = cost_of(nn.Embedding(10_000, 128), torch.randint(10_000, (64,)))
    assert cost.bytes == 2 * N * FLOAT + 64 * 8


def test_a_cache_is_written_where_it_changes():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(1000, 128))

        def forward(self, x):
            self.cache[:64] = x

    assert cost_of(Cached(), torch.randn(64, 128)).fused_bytes == 2 * N * FLOAT


def test_an_expanded_tensor_is_read_once():
    class Scaled(nn.Module):
        def forward(self, x, scale):
            return x * scale.expand(64, 128)

    assert cost_of(Scaled(), torch.randn(64, 128), torch.randn(1, 128)).bytes == (2 * N + 128) * FLOAT


@pytest.mark.parametrize(("causal", "share"), [(False, 1), (True, 2)])
def test_attention_is_one_operation_that_keeps_its_scores(causal, share):
    class Attention(nn.Module):
        def forward(self, q):
            return F.scaled_dot_product_attention(q, q, q, is_causal=causal)

    with torch.device("meta"):
        cost = cost_of(Attention(), torch.empty(2, 4, 256, 64))
    assert (cost.operations, cost.flops) == (1, 4 * 2 * 4 * 256 * 256 * 64 // share)
    assert cost.bytes == 2 * 2 * 4 * 256 * 64 * FLOAT


def test_measured_times_take_the_place_of_predicted_ones():
    class Stopwatch:
        def time(self, call):
            return call(), lambda: 1e7

    module, x = Chain(), torch.randn(64, 128)
    trace = record(module, lambda: module(x), Stopwatch())
    cost = costs(trace, ROOFLINE).whole
    assert cost.microseconds == 4e7
    assert cost.fused == pytest.approx(2 * N * FLOAT / 1000)
    linear, x = nn.Linear(16384, 16384, bias=False, device="meta"), torch.empty(16384, 16384, device="meta")
    slow = record(linear, lambda: linear(x), Stopwatch())
    assert costs(slow, ROOFLINE).whole.headroom == 0  # arithmetic limits it: the library keeps its time
