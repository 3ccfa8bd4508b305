"""Figures made of timings, and what a call must at least move. The clocks themselves are tested on a GPU."""

import itertools
import math
import random
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from kernelllm_judge.findings import Decision, Findings
from kernelllm_judge.policy import Policy
from kernelllm_judge.rules.timing import Clocks
from kernelllm_judge.shared.clock import GpuClock
from kernelllm_judge.timing import timing
from kernelllm_judge.timing.measure import FIRST_CALLS, Measurement, measure_alone
from kernelllm_judge.timing.roofline import CONVOLUTIONS, Flops, Roofline, count_flops, needed_bytes
from kernelllm_judge.truth.numerics import Expected
from kernelllm_judge.truth.prepared import PreparedProbe
from kernelllm_judge.truth.probes import Probe


def series(*rounds):
    return timing.Series(tuple(tuple(calls) for calls in rounds), (1.0,) * len(rounds))


def test_a_speedup_is_the_mean_of_the_rounds_ratios_with_its_interval():
    slow = series([10, 20, 30], *([x, x, x] for x in (20, 40, 20, 20, 40, 20)))
    fast = series(*([10, 10, 10] for _ in range(7)))
    ratio = timing.ratio(slow, fast, 0.0)
    assert ratio.value == pytest.approx(2 ** (9 / 7), rel=1e-3)
    assert ratio.low < ratio.value < ratio.high
    # Student's t with 6 degrees of freedom is 2.447; the standard error of log2 is sqrt(10/7/6/7).
    assert math.log2(ratio.high / ratio.value) == pytest.approx(2.447 * math.sqrt(10 / 7 / 6 / 7), rel=0.01)


def test_equal_series_are_as_fast_as_each_other():
    same = series([5.0, 6.0], [7.0, 5.0], [5.5, 5.5])
    ratio = timing.ratio(same, same, 0.02)
    assert (ratio.value, ratio.low, ratio.high) == (1.0, round(1 / 1.02, 4), 1.02)


def test_a_spread_gives_percentiles():
    spread = timing.spread([float(x) for x in range(1, 102)])
    assert (spread.p20, spread.p50, spread.p80) == (21.0, 51.0, 81.0)


def test_a_sample_keeps_what_percentiles_leave_out():
    sample = timing.sample([*(float(x) for x in range(1, 10)), 105.0])
    assert (sample.calls, sample.least, sample.most, sample.mean) == (10, 1.0, 105.0, 15.0)
    assert sample.deviation == pytest.approx(31.728, abs=1e-3)
    assert sample.quartiles == (3.25, 7.75)
    assert sample.outliers == (1, 1)


@dataclass
class Steady:
    name: str
    microseconds: float

    def cold(self, flushes):
        return self.microseconds

    fresh: bool = False

    def renew(self):
        assert not self.fresh  # values are written for a loop that is made
        self.fresh = True

    def loop(self, count, flushes=0):
        assert self.fresh
        self.fresh = False
        return [self.microseconds]


@pytest.mark.parametrize(
    ("most", "microseconds", "calls"), [(10, 5.0, 10), (10, 4e3, 2), (10, 1e5, 1), (1, 5.0, 1), (1, 1e5, 1)]
)
def test_slow_calls_are_made_less_often_and_never_more_often_than_asked(most, microseconds, calls):
    implementations = [Steady("kernel", microseconds), Steady("eager", 1.0)]
    policy = Policy(timing_rounds=3, timing_calls=most)
    flushes = {"kernel": 1, "eager": 1}
    series = timing.interleave(implementations, flushes, policy, random.Random(1))
    assert [len(cold) for s in series.values() for cold in s.cold] == [calls] * 6
    assert timing.ratio(series["kernel"], series["eager"], 0.0).value == pytest.approx(microseconds, rel=1e-4)


class Varying(Steady):
    """Takes a tenth longer in every second round of one call."""

    made = 0

    def cold(self, flushes):
        self.made += 1
        return self.microseconds * (1.1 if self.made % 2 else 1.0)


@pytest.mark.parametrize(
    ("microseconds", "rounds"), [(10.0, 12), (6e4, 12), (1.2e5, 7), (2e6, timing.FEWEST_ROUNDS)]
)
def test_rounds_of_very_slow_calls_are_fewer(microseconds, rounds):
    implementations = [Varying("kernel", microseconds), Steady("eager", 1.0)]
    policy = Policy(timing_calls=1)
    series = timing.interleave(implementations, {"kernel": 1, "eager": 1}, policy, random.Random(1))
    assert [len(each.cold) for each in series.values()] == [rounds] * 2


@pytest.mark.parametrize(("others", "rounds"), [([], 6), ([Varying("compiled", 5.0)], 12)])
def test_no_more_rounds_are_made_than_tell_every_speedup(others, rounds):
    implementations = [Steady("kernel", 4.0), Steady("eager", 10.0), *others]
    flushes = {each.name: 1 for each in implementations}
    series = timing.interleave(implementations, flushes, Policy(timing_calls=1), random.Random(1))
    assert [len(each.cold) for each in series.values()] == [rounds] * len(implementations)
    fewer = timing.ratio(series["eager"], series["kernel"], 0.012)
    assert fewer.high / fewer.value <= 1.012 * 1.0015


def test_enough_overwrites_of_the_cache_hide_each_launch_but_not_without_bound():
    implementations = [Steady("short", 10.0), Steady("long", 250.0), Steady("endless", 1e6)]
    assert timing.flushes_to_hide(implementations, 100.0) == {
        "short": 2,
        "long": 4,
        "endless": timing.USUAL_FLUSHES,
    }


@dataclass
class Stalling(Steady):
    """Every third call waits for the CPU, unless enough overwrites hide that."""

    enough: int = 8
    calls: int = 0

    def cold(self, flushes):
        self.calls += 1
        return self.microseconds * (3 if self.calls % 3 == 0 and flushes < self.enough else 1)


def quietly(kernel, hidden):
    implementations, policy = [kernel, Steady("eager", 20.0)], Policy(timing_calls=1)
    return timing.interleave_quietly(
        implementations, {"kernel": hidden, "eager": 3}, policy, random.Random(1)
    )


@pytest.mark.parametrize(("hidden", "used"), [(2, 8), (4, 8), (8, 8), (40, 40)])
def test_calls_that_overwrites_do_not_hide_are_timed_again_behind_more(hidden, used):
    series, flushes = quietly(Stalling("kernel", 10.0), hidden)
    assert flushes["kernel"] == used
    assert timing.ratio(series["eager"], series["kernel"], 0.0).low == 2.0


def test_what_never_gets_quiet_is_timed_no_more_than_a_few_times_behind_no_more_than_is_useful():
    asked = []

    class Never(Stalling):
        def cold(self, flushes):
            asked.append(flushes)
            return super().cold(flushes)

    series, _ = quietly(Never("kernel", 10.0, enough=1000), timing.MOST_FLUSHES // 2 + 1)
    assert timing.ratio(series["eager"], series["kernel"], 0.0).low < 1.9
    assert set(asked) == {timing.MOST_FLUSHES // 2 + 1, timing.MOST_FLUSHES}
    assert len(asked) == timing.TRIES * (1 + Policy().timing_rounds)


@dataclass
class Launching(Steady):
    """Takes the GPU ``work`` µs, and Python ``launching``, of which overwrites of 100 µs each hide as much as they take."""

    launching: float = 0.0

    def cold(self, flushes):
        return self.microseconds + max(0.0, self.launching - 100.0 * flushes)

    def loop(self, count, flushes=0):
        super().loop(count)
        return [max(self.microseconds, self.launching)]


@pytest.mark.parametrize(
    ("launching", "enough"), [(300.0, 4), (1100.0, 12), (1500.0, 24), (4000.0, 48), (9000.0, 48)]
)
def test_launches_that_take_long_are_hidden_behind_more(launching, enough):
    implementation = Launching("both passes", 50.0, launching=launching)
    assert timing.flushes_to_hide([implementation], 100.0) == {"both passes": enough}


def prepare(module, **arguments):
    with torch.no_grad():
        outputs = (module(**arguments),)
    return PreparedProbe(
        Probe("default", (), 0), module, arguments, Expected("*", outputs, outputs, (0.0,)), None
    )


class BusyMachine:
    """A GPU whose calls take ``call_us``, after overwrites of 60 µs each, and a CPU that needs 300 µs to launch a call.

    Now and then something else takes the CPU: ``disturbed`` says beside which requests.
    """

    def __init__(self, *disturbed, seconds=20e-3, call_us=40.0, reported=40.0, writing=()):
        """The worker reports ``reported`` µs a call; ``writing`` are the seconds that fresh values take, again and again."""
        self.now = 0.0
        self.call_us = call_us
        self.reported = reported
        self.writing = itertools.cycle(writing or (0.0,))
        self.requests = itertools.count()
        self.disturbed = disturbed
        self.seconds = seconds

    def perf_counter(self):
        return self.now

    def flush_us(self):
        return 60.0

    def many(self, calls, count, flushes):
        self._take(count * 60e-6 * flushes)
        return None, [0.0] * count

    def renew(self):
        self.fresh = True
        self.now += next(self.writing)

    def loop(self, count, flushes):
        assert self.fresh
        self.fresh = False
        self._take(count * max(300e-6, (60 * flushes + self.call_us) * 1e-6))
        return [self.reported] * count

    def _take(self, seconds):
        self.now += seconds + self.seconds * (next(self.requests) in self.disturbed)


def agree(judged, events):
    return abs(judged - events) < 10


def test_a_busy_cpu_is_not_taken_for_time_that_the_worker_hides(monkeypatch):
    machine = BusyMachine()
    monkeypatch.setattr(timing, "time", machine)
    judged, events = timing.by_the_judge(machine, machine, 40.0, 2, agree)
    assert judged == pytest.approx(40.0) and events == 40.0


@pytest.mark.parametrize("disturbed", [(0,), (1,), (2,), (3,), (0, 3, 5, 6), (1, 2, 4, 7)])
def test_what_else_the_machine_does_counts_neither_for_nor_against_a_kernel(monkeypatch, disturbed):
    machine = BusyMachine(*disturbed)
    monkeypatch.setattr(timing, "time", machine)
    judged, _ = timing.by_the_judge(machine, machine, 40.0, 8, agree)
    assert judged == pytest.approx(40.0)


def test_values_that_take_long_to_write_count_neither_for_nor_against_a_kernel(monkeypatch):
    # 7 GB from the host's memory take 0.15 s, now more and now less, where a call takes 5,400 µs.
    machine = BusyMachine(call_us=5400.0, reported=5400.0, writing=(0.150, 0.157))
    monkeypatch.setattr(timing, "time", machine)
    judged, _ = timing.by_the_judge(machine, machine, 5400.0, 8, agree)
    assert judged == pytest.approx(5400.0)


@pytest.mark.parametrize("disturbed", [(), (2,), (3, 7), (0, 5)])
def test_time_that_the_worker_hides_stays_whatever_the_machine_does(monkeypatch, disturbed):
    machine = BusyMachine(*disturbed, reported=10.0)
    monkeypatch.setattr(timing, "time", machine)
    judged, events = timing.by_the_judge(machine, machine, 10.0, 8, agree)
    assert judged == pytest.approx(40.0) and events == 10.0


@pytest.mark.parametrize(("disturbed", "seconds"), [((0,), 20e-3), ((3,), 20e-3), ((0,), 16 * 35e-6)])
def test_one_disturbance_does_not_make_the_clocks_agree(monkeypatch, disturbed, seconds):
    machine = BusyMachine(*disturbed, seconds=seconds, reported=5.0)
    monkeypatch.setattr(timing, "time", machine)
    judged, events = timing.by_the_judge(machine, machine, 5.0, 8, agree)
    assert judged == pytest.approx(40.0) and events == 5.0


@pytest.mark.parametrize(
    ("judged", "disturbed", "verdict"),
    [(15500.0, True, None), (24000.0, False, "rejected"), (24000.0, True, "inconclusive")],
)
def test_hidden_time_is_held_against_a_kernel_where_the_clocks_agree_about_the_original(
    judged, disturbed, verdict
):
    judging = SimpleNamespace(policy=Policy(), findings=Findings({"clocks": "timing"}))
    measured = Measurement(None, judged, 15400.0, 15400.0, 1.0, disturbed)
    run = SimpleNamespace(judging=judging, where="default")
    if verdict is None:
        Clocks().check_measurement(run, measured)
        return
    with pytest.raises(Decision) as decision:
        Clocks().check_measurement(run, measured)
    assert decision.value.verdict == verdict


class Overwriting(GpuClock):
    """A GPU whose overwrites of L2 take 60 µs each, or as many times longer as given."""

    def __init__(self, *longer):
        super().__init__()
        self.longer = iter(longer)

    def many(self, calls, count, flushes=0):
        return None, [60.0 * next(self.longer)]


def test_an_overwrite_takes_what_the_least_disturbed_ones_do():
    assert Overwriting(1.3, 1.2, 1.0, 1.1, 1.2).flush_us() == 60.0


def test_a_call_must_read_what_its_outputs_depend_on_and_write_them():
    torch.manual_seed(0)
    read, written = needed_bytes(prepare(torch.nn.Linear(8, 4), input=torch.randn(16, 8)))
    assert (read, written) == (4 * (16 * 8 + 8 * 4 + 4), 4 * 16 * 4)


def test_a_table_counts_only_by_the_rows_that_are_read():
    table = torch.nn.Embedding(1000, 8)
    read, _ = needed_bytes(prepare(table, input=torch.tensor([3, 5, 5, 999])))
    assert read == 3 * 8 * 4


class InPlace(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.weight.mul_(x)


def test_of_an_original_that_cannot_be_differentiated_only_the_writes_are_known():
    assert needed_bytes(prepare(InPlace(), x=torch.randn(4))) == (0, 16)


def test_writes_that_fit_the_cache_are_not_counted_and_the_fastest_precision_counts():
    roofline = Roofline(100.0, {"float32": 10.0, "bfloat16": 100.0}, cache_bytes=1000)
    assert roofline.least(read=500, written=900, flops=0) == 5.0
    assert roofline.least(read=500, written=1500, flops=0) == 10.0
    assert roofline.least(read=0, written=0, flops=10_000) == 100.0


def test_float32_convolutions_count_at_the_rate_of_tf32():
    roofline = Roofline(100.0, {"float32": 10.0, "bfloat16": 100.0, CONVOLUTIONS: 50.0}, cache_bytes=0)
    assert roofline.microseconds(100, Flops(2000, 1000), "float32") == 120.0
    assert roofline.microseconds(100, Flops(2000, 1000), "bfloat16") == 20.0
    assert roofline.microseconds(1_000_000, Flops(2000, 1000), "float32") == 10_000.0


def test_the_flops_of_convolutions_are_known_apart():
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(16, 5))
    found = count_flops(lambda: module(torch.randn(3, 2, 4, 4)))
    assert found == Flops(total=3 * 2 * (4 * 4 * 2 * 9 + 16 * 5), convolutions=3 * 2 * 4 * 4 * 2 * 9)


@pytest.mark.parametrize(
    ("keys", "causal", "pairs"), [(8, False, 8 * 8), (8, True, 36), (3, True, 1 + 2 + 3 * 6), (12, True, 36)]
)
@pytest.mark.parametrize("heads", [6, 2])
def test_attention_counts_what_is_below_the_diagonal_for_each_head_of_queries(keys, causal, pairs, heads):
    query, key, value = (torch.randn(2, n, s, 16) for n, s in ((6, 8), (heads, keys), (heads, keys)))
    query.requires_grad_()
    attend = torch.nn.functional.scaled_dot_product_attention

    def call():
        return attend(query, key, value, is_causal=causal, enable_gqa=heads < 6)

    forward = 2 * (2 * 6) * pairs * (16 + 16)
    assert count_flops(call).total == forward
    assert count_flops(lambda: call().sum().backward()).total == 3 * forward


class Searched(Steady):
    """A candidate of a search: its loops take other times one after the other, the last one from then on."""

    flush_us = 100.0

    def __init__(self, *loops):
        super().__init__("kernel", loops[0])
        self.prepared = [prepare(nn.ReLU(), input=torch.ones(8))]
        self.loops = list(loops)
        self.made = []

    def loop(self, count, flushes=0):
        super().loop(count)
        self.made.append((count, flushes))
        return [self.loops.pop(0) if len(self.loops) > 1 else self.loops[0]] * count


def searched(*loops):
    runner = Searched(*loops)
    original = SimpleNamespace(eager=lambda: None, bytes=2000)
    return runner, measure_alone(runner, Roofline(100.0, {"float32": 10.0}, cache_bytes=0), original)


def test_a_search_takes_the_faster_of_two_loops_behind_different_overwrites():
    runner, time = searched(*[50.0] * 4, 60.0, 55.0)
    assert (time.case, time.microseconds, time.roofline) == ("default", 55.0, 20.0)
    [(first, few), (calls, same), (again, more)] = runner.made[-3:]
    assert first == FIRST_CALLS < calls == again
    assert few == same < more


def test_a_search_calls_a_slow_candidate_few_times():
    runner, time = searched(1e6, 9e5)
    assert time.microseconds == 9e5
    assert [count for count, _ in runner.made[-2:]] == [FIRST_CALLS, FIRST_CALLS]
