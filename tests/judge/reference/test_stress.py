import math

import pytest
import torch

from pytest_kernelllm.judge.reference.stress import NEAR_DUPLICATE, PLANTED, TRANSFORMS, real_valued, stressed

KINDS = [*TRANSFORMS, *PLANTED]


def drawn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(torch.arange(6), id="indices"),
        pytest.param(torch.tensor([True, False]), id="a mask"),
        pytest.param(torch.tensor([1.0, -1.0, 1.0]), id="labels of plus and minus one"),
        pytest.param(torch.rand(8, generator=torch.Generator().manual_seed(0)), id="probabilities"),
        pytest.param(torch.tensor([[0.0, -math.inf]]), id="an additive mask"),
        pytest.param(torch.tensor(-0.5), id="a number"),
        pytest.param(torch.empty(0, 4), id="nothing"),
        pytest.param(3, id="a plain value"),
    ],
)
@pytest.mark.parametrize("name", KINDS)
def test_inputs_with_a_meaning_are_left_alone(kept, name):
    assert stressed({"kept": kept, "x": drawn(4, 8)}, name, 1)["kept"] is kept


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_stress_keeps_form_and_finiteness(name, dtype):
    x = drawn(3, 8, 32, dtype=dtype)
    out = stressed({"x": x}, name, 1)["x"]
    assert (out.shape, out.dtype) == (x.shape, dtype)
    assert bool(out.isfinite().all())
    assert not torch.equal(out, x)
    assert torch.equal(out, stressed({"x": x}, name, 1)["x"]), "the same seed gives the same inputs"


def test_each_kind_is_what_its_name_says():
    x = drawn(16, 64)
    out = {name: stressed({"x": x}, name, 1)["x"] for name in TRANSFORMS}
    torch.testing.assert_close(out["×0.0001"], x * 1e-4)
    torch.testing.assert_close(out["×10000"], x * 1e4)
    assert float(out["shifted"].mean()) > 50 * float(out["shifted"].std())
    assert sorted((out["large-row"] / x).mean(1).round().tolist()) == [1.0] * 14 + [1000.0] * 2
    assert len(out["equal-row"].unique(dim=0)) == 1
    assert all(len(row.unique()) == 1 for row in out["equal-value"])
    assert all(len(row.unique()) == 2 for row in out["two-value"])
    assert 0 < int((out["sparse"] != 0).sum()) < x.numel() // 8
    assert 1e17 < float(out["extreme"].abs().max()) < 1e18


def test_sums_of_squares_of_extreme_inputs_are_numbers():
    x = stressed({"x": drawn(4, 4096)}, "extreme", 1)["x"]
    assert bool(x.square().sum(-1).isfinite().all())


def test_mixed_rows_hold_every_kind_and_are_alike_in_all_inputs():
    x, y = drawn(16, 64), drawn(16, 64, seed=1)
    out = stressed({"x": x, "y": y}, "mixed-row", 1)
    constant = [len(row.unique()) == 1 for row in out["x"]]
    assert constant == [len(row.unique()) == 1 for row in out["y"]]
    assert sum(constant) == 2
    assert sum(len(row.unique()) == 2 for row in out["x"]) == 2
    assert sum(bool((row == 0).any()) for row in out["x"]) == 2


@pytest.mark.parametrize("shape", [(2,), (7,), (4, 64), (64, 512)])
def test_a_near_duplicate_differs_in_a_few_values_of_the_same_size(shape):
    x = drawn(*shape)
    x.view(-1)[:2] = torch.tensor([1.5, -0.5])
    labels = torch.ones(4)
    changed = stressed({"x": x, "labels": labels}, NEAR_DUPLICATE, 3)
    assert changed["labels"] is labels
    differ = int((changed["x"] != x).sum())
    assert 1 <= differ <= max(4, x.numel() // 256)
    assert changed["x"].abs().max() <= x.abs().max()


def test_few_rows_hold_the_most_discriminating_kinds():
    for seed in range(8):
        out = stressed({"x": drawn(4, 64)}, "mixed-row", seed)["x"]
        assert sorted(len(row.unique()) for row in out)[:2] == [1, 2]
        assert sum(float(row.mean()) > 50 for row in out) == 1


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_value_is_in_secret_places_of_a_row_of_its_own(name):
    x = drawn(8, 64)
    rows, columns = set(), set()
    for seed in range(16):
        out = stressed({"x": x}, name, seed)["x"]
        strange = ~out.isfinite()
        assert int(strange.sum()) == 64 // 8 * len(PLANTED[name])
        assert int(strange.any(1).sum()) == len(PLANTED[name])
        eight_times = torch.tensor(PLANTED[name]).repeat(8)
        torch.testing.assert_close(out[strange].sort().values, eight_times.sort().values, equal_nan=True)
        assert torch.equal(out[~strange], x[~strange])
        row, column = strange.nonzero()[0].tolist()
        rows.add(row)
        columns.add(column)
    assert len(rows) > 1
    assert len(columns) > 4


def test_more_values_than_rows_are_planted_as_far_as_they_go():
    out = stressed({"x": drawn(1, 64)}, "NaN and ±inf", 1)["x"]
    assert int(out.isnan().sum()) == 64 // 8 == int((~out.isfinite()).sum())


def test_real_values_are_distinguished_from_others():
    assert real_valued(drawn(4, 4))
    assert not real_valued(drawn(4, 4).abs())
    assert not real_valued(drawn(4, 4).round())
    assert not real_valued(drawn(4, 4).to(torch.complex64))
