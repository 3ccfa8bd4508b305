"""Large outputs that passed are recognised."""

import random
from dataclasses import replace

import pytest
import torch
from test_outputs import references
from test_slices import SLICED
from torch import nn

from kernelllm_judge.findings import Decision, Findings
from kernelllm_judge.rules.effects import check_inputs_kept
from kernelllm_judge.run.call import Judging, Uploaded
from kernelllm_judge.run.comparison import EXACTLY, check_outputs, outputs_pass
from kernelllm_judge.shared.buffers import Allocator
from kernelllm_judge.truth.prepared import Sliced
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.truth import Truth

ROWS = 40
"""In ten slices."""


class Watched(nn.Module):
    runs: list[torch.Tensor] = []

    def forward(self, x):
        if x.dtype == torch.float32:
            self.runs.append(x)
        return x * 3


@pytest.fixture
def judged():
    """A judged candidate without a worker, its prepared probe, and buffers with right outputs."""
    target = references(Watched, policy=SLICED)
    prepared = target.prepare(Probe("default", (("n", ROWS),), 1))
    allocator = Allocator(torch.device("cpu"))
    judging = Judging(None, allocator, target, Findings({"values": "correctness"}), random.Random(1))
    x = prepared.arguments["x"]
    uploaded = Uploaded({}, {"x": torch.empty_like(x)}, {}, [(x * 3, {})])
    uploaded.write_inputs(prepared)
    yield judging, uploaded, prepared
    allocator.close()


def check(judged, **more):
    """Checks the outputs, and returns how often the original ran for that."""
    judging, uploaded, prepared = judged
    Watched.runs.clear()
    check_outputs(judging, uploaded, prepared, "values", **more)
    return len(Watched.runs)


def test_outputs_that_passed_are_not_compared_again(judged):
    assert check(judged) >= 10
    assert check(judged) == 0
    assert check(judged, sampled=True) == 0
    [(output, _)] = judged[1].outputs
    output[4:8] *= 1 + 1e-7  # as right as before
    assert check(judged) > 0
    assert check(judged) == 0


class Sine(nn.Module):
    """In float32, sines of large numbers have fewer right digits."""

    def forward(self, x):
        return x.sin()


class Elsewhere(random.Random):
    """Chooses other pieces than the one that is wrong for the comparison that every call has."""

    def sample(self, population, count):
        return [mark for mark in population if mark[0] != 20][:count]


def judged_as(kind, draw, factor, calls=3):
    """Judges outputs of the original's, of which those of four rows are multiplied with a factor."""
    target = references(kind, draw, SLICED)
    prepared = target.prepare(Probe("default", (("n", ROWS),), 1))
    allocator = Allocator(torch.device("cpu"))
    judging = Judging(None, allocator, target, Findings({"values": "correctness"}), Elsewhere(1))
    output = prepared.module(prepared.arguments["x"])
    output[20:24] *= factor
    try:
        for _ in range(calls):
            check((judging, Uploaded({}, {}, {}, [(output, {})]), prepared))
    finally:
        allocator.close()


class Noisy(nn.Module):
    """Its own rounding grows with the sizes of a row's numbers."""

    def forward(self, x):
        return (x * 100).sin()


@pytest.mark.parametrize("kind, factor", [(Sine, 1.5e-5), (Noisy, 1e-3)])
def test_what_is_allowed_in_other_pieces_is_not_allowed_where_float64_allows_less(kind, factor):
    def draw(n):
        x = torch.rand(n, 64) * 100 + 100
        x[20:24] /= 100  # few numbers have so many right digits
        return x

    judged_as(kind, draw, 1)
    with pytest.raises(Decision, match="is wrong at"):
        judged_as(kind, draw, 1 + factor)


def test_pieces_that_differ_as_the_original_errs_need_one_run_in_float64(monkeypatch):
    """As where both compute in TF32: nearly all pieces differ by more than rounding, and are right."""
    thorough, quick = [], []
    expected, strictly = Truth.expected, Truth.strictly
    monkeypatch.setattr(Truth, "expected", lambda *args: (thorough.append(1), expected(*args))[1])
    monkeypatch.setattr(Truth, "strictly", lambda *args: (quick.append(1), strictly(*args))[1])
    judged_as(Noisy, lambda n: torch.rand(n, 64) * 100 + 100, 1 + 5e-6, calls=1)
    assert (len(thorough), len(quick)) == (1 + EXACTLY, 1)


@pytest.mark.parametrize("row", [0, 5, 22, ROWS - 1])
def test_outputs_that_change_while_they_are_compared_are_not_remembered(judged, row, monkeypatch):
    [(output, _)] = judged[1].outputs
    right = output.clone()
    output[row] += 1
    marks = Sliced.marks

    def marks_then_change(self, pieces, outputs):
        found = marks(self, pieces, outputs)
        output.copy_(right)  # as another stream of the worker's might
        return found

    with monkeypatch.context() as during:
        during.setattr(Sliced, "marks", marks_then_change)
        check(judged)
    output[row] += 1
    with pytest.raises(Decision, match="is wrong at"):
        check(judged)


@pytest.mark.parametrize("row", [0, 5, 22, ROWS - 1])
def test_a_wrong_element_is_found_after_right_ones(judged, row):
    check(judged)
    _, uploaded, _ = judged
    [(output, _)] = uploaded.outputs
    output[row, 7] += 1e-2
    assert not outputs_pass(*judged)
    for _ in range(2):  # what is wrong is not remembered as right
        with pytest.raises(Decision, match=rf"is wrong at \[{row}, 7\]"):
            check(judged)


def test_right_rows_in_the_place_of_others_are_wrong(judged):
    check(judged)
    [(output, _)] = judged[1].outputs
    output[4:12] = output[4:12].roll(4, 0)
    with pytest.raises(Decision, match="is wrong at"):
        for _ in range(20):
            check(judged, sampled=True)


def test_what_a_rule_that_is_not_in_force_lets_through_is_not_taken_for_right(judged):
    judging, uploaded, prepared = judged
    [(output, _)] = uploaded.outputs
    output += 1
    check_outputs(judging, uploaded, prepared, "repeat")
    with pytest.raises(Decision, match="is wrong at"):
        for _ in range(20):
            check(judged, sampled=True)


def test_an_input_that_was_changed_shows_and_is_written_again(judged):
    _, uploaded, prepared = judged
    findings = Findings({"inputs kept": "correctness"})
    check_inputs_kept(uploaded, prepared, findings)
    uploaded.inputs["x"][3, 9] += 1
    with pytest.raises(Decision, match="it changes its input `x` in place"):
        check_inputs_kept(uploaded, prepared, findings)
    uploaded.write_inputs(prepared)
    check_inputs_kept(uploaded, prepared, findings)


def test_another_probes_inputs_are_written(judged):
    judging, uploaded, prepared = judged
    other = judging.references.prepare(replace(prepared.probe, seed=2))
    for probe in (other, other, prepared):
        uploaded.write_inputs(probe)
        assert torch.equal(uploaded.inputs["x"], probe.arguments["x"])


class Asked(Exception):
    """A closer look was taken."""


@pytest.mark.parametrize(
    ("wrong", "asked"), [(1.0, False), (float("nan"), False), (2e-5, True), (float("inf"), True)]
)
def test_only_what_might_be_right_is_looked_at_more_closely(wrong, asked):
    def closely():
        raise Asked

    target = references(Watched)
    prepared = replace(target.prepare(Probe("default", (("n", ROWS),), 1)), closely=closely)
    output = prepared.module(**prepared.arguments)
    output[3, 7] += wrong
    allocator = Allocator(torch.device("cpu"))
    judging = Judging(None, allocator, target, Findings({"values": "correctness"}), random.Random(1))
    uploaded = Uploaded({}, {}, {}, [(output, {})])
    with pytest.raises(Asked if asked else Decision):
        check_outputs(judging, uploaded, prepared, "values")
    allocator.close()
