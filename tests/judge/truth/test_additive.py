"""Losses of large inputs in float64: means and sums over rows, computed some rows at a time."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelllm_judge.truth import calls
from kernelllm_judge.truth.float64 import Float64Runs, find_reduction

ROWS, WIDTH = 41, 6


class Loss(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.register_buffer("place", torch.arange(1000.0))

    def forward(self, x, y):
        return self.function(self, x, y)


def drawn():
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(ROWS, WIDTH, generator=generator) for name in ("x", "y")}


MEANS = {
    "mse": lambda m, x, y: F.mse_loss(x, y),
    "huber": lambda m, x, y: F.smooth_l1_loss(x, y),
    "hinge": lambda m, x, y: torch.clamp(1 - x * y[:, :1], min=0).mean(),
    "batchmean": lambda m, x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    "weighted columns": lambda m, x, y: (m.weight * (x - y)).abs().mean(),
    "two of them": lambda m, x, y: (F.mse_loss(x, y), F.l1_loss(x, y)),
}
SUMS = {"sum": lambda m, x, y: (x * y).sum(), "columns": lambda m, x, y: (x - y).abs().sum(0)}
NEITHER = {
    "norm": lambda m, x, y: (x - y).norm(),
    "largest": lambda m, x, y: (x - y).abs().max(),
    "median": lambda m, x, y: (x - y).abs().mean(1).median(),
    "neighbours": lambda m, x, y: (x[1:] - x[:-1]).abs().sum() + y.sum(),
    "place": lambda m, x, y: (m.place[: len(x), None] * (x - y).abs()).mean(),
    "scaled by all": lambda m, x, y: (x / x.abs().max() - y).abs().mean(),
    "fewer than": lambda m, x, y: F.mse_loss(x, y) * (2.0 if len(x) > 30 else 1.0),
    "not a loss": lambda m, x, y: x - y,
    "whole numbers": lambda m, x, y: (x > y).sum(),
}


def run(module, arguments):
    return calls.run_in_float64(module, arguments)


def find(function, arguments, elements):
    module = calls.copied(Loss(function), calls.to_float64)
    losses = run(module, arguments)
    found = find_reduction(arguments, losses, lambda slicing: lambda some: run(module, some), elements)
    return module, losses, found


@pytest.mark.parametrize("elements", [WIDTH, 3 * WIDTH, 7 * WIDTH, 1 << 20])
@pytest.mark.parametrize(("name", "mean"), [*((n, True) for n in MEANS), *((n, False) for n in SUMS)])
def test_means_and_sums_over_rows_are_found(name, mean, elements):
    arguments = drawn()
    module, losses, reduction = find((MEANS | SUMS)[name], arguments, elements)
    assert reduction is not None and reduction.mean is mean
    assert reduction.slicing.step == max(1, min(ROWS // 2, elements // WIDTH))
    for found in (reduction.of_all, reduction.checked):
        torch.testing.assert_close(
            found(arguments, lambda some: run(module, some)), losses, rtol=1e-12, atol=0
        )


@pytest.mark.filterwarnings("ignore:Using a target size")  # where one of two arguments is cut
@pytest.mark.parametrize("elements", [WIDTH, 3 * WIDTH, 7 * WIDTH, 1 << 20])
@pytest.mark.parametrize("name", NEITHER)
def test_what_depends_on_rows_in_another_way_is_neither(name, elements):
    assert find(NEITHER[name], drawn(), elements)[2] is None


@pytest.mark.parametrize("value", [0.0, torch.inf, torch.nan])
def test_losses_that_tell_nothing_are_not_learned_from(scarce, value):
    def function(m, x, y):
        return F.mse_loss(x, y, reduction="sum") * (value if bool((x == 7).any()) else 1.0)

    noted, rows = noting(function)
    module, arguments = calls.copied(Loss(noted), calls.to_float64), drawn()
    scarce.run(module, arguments | {"x": torch.full_like(arguments["x"], 7)})
    scarce.run(module, arguments)
    rows.clear()
    scarce.run(module, arguments)
    assert max(rows) == 8


def test_large_rows_are_not_cut():
    assert find(MEANS["mse"], drawn(), WIDTH - 1)[2] is None


def test_integers_which_may_be_numbers_of_rows_are_never_cut():
    arguments = drawn() | {"y": torch.arange(ROWS) % WIDTH}
    assert find(lambda m, x, y: F.cross_entropy(x, y), arguments, WIDTH)[2] is None


def test_many_sums_are_no_loss(scarce):
    noted, rows = noting(lambda m, x, y: (x * y).sum(0))
    module = calls.copied(Loss(noted), calls.to_float64)
    for _ in range(2):
        scarce.run(module, {"x": torch.rand(ROWS, 17), "y": torch.rand(ROWS, 17)})
    assert set(rows) == {ROWS}


def test_what_belongs_to_columns_is_not_cut():
    arguments = {"x": torch.rand(ROWS, ROWS), "y": torch.rand(ROWS)}

    def hinge(m, x, y):
        return torch.clamp(1 - x * y, min=0).mean()

    _, _, reduction = find(hinge, arguments, 3 * ROWS)
    assert reduction is not None and reduction.slicing.names == {"x"}


def test_what_is_not_cut_has_few_elements():
    arguments = {"x": torch.rand(ROWS, WIDTH), "y": torch.rand(WIDTH, 40)}
    assert find(lambda m, x, y: (x @ y).mean(), arguments, WIDTH * 40)[2] is not None
    assert find(lambda m, x, y: (x @ y).mean(), arguments, WIDTH * 40 - 1)[2] is None


def test_of_nothing_there_are_no_losses():
    nothing = {"x": torch.rand(ROWS, 0), "y": torch.rand(ROWS, 0)}
    assert find(lambda m, x, y: (x * y).sum(), nothing, WIDTH)[2] is None


def noting(function):
    """Returns the function, and a list that gets the rows of each call."""
    rows = []

    def noted(m, x, y):
        rows.append(len(x))
        return function(m, x, y)

    return noted, rows


@pytest.fixture
def scarce():
    return Float64Runs("cpu", 4 * WIDTH, lambda arguments: True)


def test_only_the_first_run_is_made_for_all_rows_at_once(scarce):
    noted, rows = noting(MEANS["mse"])
    module, arguments = calls.copied(Loss(noted), calls.to_float64), drawn()
    expected = run(module, arguments)
    for most in (ROWS, 8, 8):
        rows.clear()
        found = scarce.run(module, arguments)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
        assert max(rows) == most


def test_values_that_are_not_finite_are_no_reason_to_compute_all_at_once(scarce):
    noted, rows = noting(MEANS["mse"])
    module, arguments = calls.copied(Loss(noted), calls.to_float64), drawn()
    scarce.run(module, arguments)
    for value in (torch.nan, torch.inf):
        arguments["x"][20, 3] = value
        rows.clear()
        torch.testing.assert_close(
            scarce.run(module, arguments), run(module, arguments), rtol=0, atol=0, equal_nan=True
        )
        assert max(rows[:-1]) == 8


def test_nothing_is_learned_from_a_perturbed_run(scarce):
    noted, rows = noting(MEANS["mse"])
    module, arguments = calls.copied(Loss(noted), calls.to_float64), drawn()
    scarce.run(module, arguments, calls.perturbation(1e-3, 1, torch.device("cpu")))
    scarce.run(module, arguments)
    rows.clear()
    scarce.run(module, arguments)
    assert max(rows) == 8


def test_an_argument_that_is_changed_in_place_is_another_one_for_each_slice():
    def function(m, x, y):
        y.mul_(2)
        return (x * y).mean()

    noted, rows = noting(function)
    module = calls.copied(Loss(noted), calls.to_float64)
    arguments = {"x": torch.rand(ROWS, ROWS + 1), "y": torch.rand(ROWS + 1)}
    runs = Float64Runs("cpu", 4 * ROWS, lambda arguments: True)
    runs.run(module, arguments)
    rows.clear()
    torch.testing.assert_close(runs.run(module, arguments), run(module, arguments), rtol=1e-12, atol=0)
    assert max(rows[:-1]) < ROWS


def test_perturbed_runs_move_every_slice_a_little(scarce):
    noted, rows = noting(MEANS["mse"])
    module, arguments = calls.copied(Loss(noted), calls.to_float64), drawn()
    [exact] = scarce.run(module, arguments)
    change = calls.perturbation(1e-6, 1, torch.device("cpu"))
    rows.clear()
    [near] = scarce.run(module, arguments, change)
    assert 0 < abs(near / exact - 1) < 1e-5
    assert max(rows) == 8  # of unchanged pairs; not of all


def test_what_is_not_cut_is_moved_once_for_all_slices(scarce):
    seen = []

    def function(m, x, y):
        seen.append(y.clone())
        return torch.clamp(1 - x * y, min=0).mean()

    module = calls.copied(Loss(function), calls.to_float64)
    arguments = {"x": torch.rand(ROWS, ROWS), "y": torch.rand(ROWS) + 1}
    runs = Float64Runs("cpu", 4 * ROWS, lambda arguments: True)
    runs.run(module, arguments)
    seen.clear()
    runs.run(module, arguments, calls.perturbation(1e-6, 1, torch.device("cpu")))
    moved = [y for y in seen if not torch.equal(y, arguments["y"].double())]
    assert len(moved) > 2 and all(torch.equal(y, moved[0]) for y in moved)


def test_rows_that_count_less_are_noticed_wherever_they_are(scarce):
    def masked(m, x, y):
        counts = y > -9
        return ((x - y).abs() * counts).sum() / counts.sum()

    noted, rows = noting(masked)
    module, arguments = calls.copied(Loss(noted), calls.to_float64), drawn()
    scarce.run(module, arguments)
    for at in (0, 17, ROWS - 1):
        other = {name: value.clone() for name, value in arguments.items()}
        other["y"][at, :3] = -10
        rows.clear()
        found = scarce.run(module, other)
        torch.testing.assert_close(found, run(module, other), rtol=1e-12, atol=0)
        assert ROWS in rows[:-1]


def test_values_at_which_the_loss_is_another_one_are_computed_at_once(scarce):
    def function(m, x, y):
        return (x - y).norm() if bool((x > 5).any()) else F.mse_loss(x, y)

    noted, rows = noting(function)
    module, arguments = calls.copied(Loss(noted), calls.to_float64), drawn()
    scarce.run(module, arguments)
    large = arguments | {"x": arguments["x"] + 10}
    for _ in range(2):
        rows.clear()
        found = scarce.run(module, large)
        assert max(rows) == ROWS
        torch.testing.assert_close(found, run(module, large), rtol=1e-12, atol=0)


def test_what_is_far_from_the_originals_own_loss_is_computed_at_once(scarce):
    def function(m, x, y):
        return F.mse_loss(x, y).clamp(max=1e3) if len(x) <= 8 else F.mse_loss(x, y).clamp(max=1e6)

    module, arguments = calls.copied(Loss(function), calls.to_float64), drawn()
    scarce.run(module, arguments)
    large = arguments | {"x": 100 * arguments["x"]}
    expected = run(module, large)
    assert not torch.allclose(scarce.run(module, large)[0], expected[0])
    own = [loss.float() for loss in expected]
    assert torch.equal(scarce.run(module, large, about=own)[0], expected[0])
    # Nor is it believed for slightly other arguments.
    change = calls.perturbation(1e-6, 1, torch.device("cpu"))
    torch.testing.assert_close(scarce.run(module, large, change)[0], expected[0], rtol=1e-4, atol=0)


@pytest.mark.parametrize("about", [[], [None], [torch.zeros(2)], [torch.zeros(()), torch.zeros(())]])
def test_outputs_of_another_form_are_not_about_a_loss(scarce, about):
    module, arguments = calls.copied(Loss(MEANS["mse"]), calls.to_float64), drawn()
    scarce.run(module, arguments)
    assert torch.equal(scarce.run(module, arguments, about=about)[0], run(module, arguments)[0])


def test_what_is_not_cut_may_lack_memory(scarce, monkeypatch):
    module = calls.copied(Loss(lambda m, x, y: (x * y).mean()), calls.to_float64)
    arguments = {"x": torch.rand(ROWS, WIDTH), "y": torch.rand(WIDTH)}
    expected = run(module, arguments)
    mapped = calls.mapped

    def lacking(some, change):
        if set(some) == {"y"}:
            raise torch.cuda.OutOfMemoryError("no memory")
        return mapped(some, change)

    monkeypatch.setattr(calls, "mapped", lacking)
    for _ in range(2):
        assert torch.equal(scarce.run(module, arguments)[0], expected[0])


def test_rows_that_the_original_refuses_alone_are_computed_at_once(scarce):
    def function(m, x, y):
        if len(x) % ROWS:
            raise ValueError("not a whole batch")
        return F.mse_loss(x, y)

    module, arguments = calls.copied(Loss(function), calls.to_float64), drawn()
    for _ in range(2):
        assert torch.equal(scarce.run(module, arguments)[0], run(module, arguments)[0])


def test_other_numbers_of_losses_for_fewer_rows_are_no_error(scarce):
    def function(m, x, y):
        return [F.mse_loss(x, y), *([F.l1_loss(x, y)] if len(x) > 30 else [])]

    module, arguments = calls.copied(Loss(function), calls.to_float64), drawn()
    for _ in range(2):
        assert len(scarce.run(module, arguments)) == 2


def test_what_a_slice_lacks_memory_for_is_computed_at_once(scarce):
    lacking = []

    def function(m, x, y):
        if lacking and len(x) < ROWS:
            raise torch.cuda.OutOfMemoryError("no memory")
        return F.mse_loss(x, y)

    module, arguments = calls.copied(Loss(function), calls.to_float64), drawn()
    scarce.run(module, arguments)
    lacking.append(True)
    assert torch.equal(scarce.run(module, arguments)[0], run(module, arguments)[0])


@pytest.mark.parametrize(
    "wrap", [lambda m: calls.Rows(m, slice(0, 3)), lambda m: calls.Updating(m, ("place",), True)]
)
def test_what_gives_rows_or_buffers_is_computed_at_once(scarce, wrap):
    noted, rows = noting(SUMS["columns"])
    module, arguments = calls.copied(wrap(Loss(noted)), calls.to_float64), drawn()
    for _ in range(2):
        scarce.run(module, arguments)
    assert set(rows) == {ROWS}


def test_with_room_nothing_is_cut():
    noted, rows = noting(MEANS["mse"])
    module, arguments = calls.copied(Loss(noted), calls.to_float64), drawn()
    runs = Float64Runs("cpu", 4 * WIDTH, lambda arguments: False)
    for _ in range(2):
        runs.run(module, arguments)
    assert rows == [ROWS] * 2
