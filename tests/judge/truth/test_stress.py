import math

import pytest
import torch

from kernelllm_judge.truth.stress import TRANSFORMS, changed, plant, real_valued


def drawn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_stress_keeps_form_and_finiteness(name, dtype):
    x = drawn(3, 8, 32, dtype=dtype)
    out = changed(x, name, 1)
    assert (out.shape, out.dtype) == (x.shape, dtype)
    assert bool(out.isfinite().all())
    assert not torch.equal(out, x)
    assert torch.equal(out, changed(x, name, 1)), "the same seed gives the same inputs"


def test_each_kind_is_what_its_name_says():
    x = drawn(16, 64)
    out = {name: changed(x, name, 1) for name in TRANSFORMS}
    torch.testing.assert_close(out["×0.0001"], x * 1e-4)
    torch.testing.assert_close(out["×10000"], x * 1e4)
    assert float(out["shifted"].mean()) > 50 * float(out["shifted"].std())
    assert len(out["equal-row"].unique(dim=0)) == 1
    assert all(len(row.unique()) == 1 for row in out["equal-value"])
    assert all(len(row.unique()) == 2 for row in out["two-value"])
    assert 0 < int((out["sparse"] != 0).sum()) < x.numel() // 8


def test_mixed_rows_hold_every_kind_and_are_alike_in_all_inputs():
    x, y = drawn(16, 64), drawn(16, 64, seed=1)
    out = {name: changed(value, "mixed-row", 1) for name, value in (("x", x), ("y", y))}
    constant = [len(row.unique()) == 1 for row in out["x"]]
    assert constant == [len(row.unique()) == 1 for row in out["y"]]
    assert sum(constant) == 2
    assert sum(len(row.unique()) == 2 for row in out["x"]) == 2
    assert sum(bool((row == 0).any()) for row in out["x"]) == 2


def test_low_rows_reach_far_below_zero_and_to_zero():
    out = changed(drawn(14, 64), "low-row", 1)
    assert sum(bool((row < -1e4).all()) for row in out) == 2
    assert sum(bool((row < -100).all()) for row in out) == 4
    assert sum(bool((row == 0).all()) for row in out) == 2
    assert sum(bool((row.abs() < 1e-38).all()) for row in out) == 4


def test_few_rows_hold_the_most_discriminating_kinds():
    for seed in range(8):
        out = changed(drawn(4, 64), "mixed-row", seed)
        assert sorted(len(row.unique()) for row in out)[:2] == [1, 2]
        assert sum(float(row.mean()) > 50 for row in out) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_planted_value_is_in_secret_places_of_one_row(value):
    x = drawn(8, 64)
    rows, columns = set(), set()
    for seed in range(16):
        out = plant(x, ((value,),), torch.Generator().manual_seed(seed))
        strange = ~out.isfinite()
        assert int(strange.sum()) == 64 // 8
        [row] = strange.any(1).nonzero().flatten().tolist()
        planted = torch.tensor(value).expand(8)
        torch.testing.assert_close(out[strange], planted, equal_nan=True)
        assert torch.equal(out[~strange], x[~strange])
        rows.add(row)
        columns.add(strange.nonzero()[0, 1].item())
    assert len(rows) > 1
    assert len(columns) > 4


def test_together_there_are_a_whole_row_of_minus_infinity_and_one_of_both_signs():
    out = changed(drawn(8, 64), "NaN and ±inf", 3)
    kinds = [(int(r.isnan().sum()), int((r == math.inf).sum()), int((r == -math.inf).sum())) for r in out]
    assert sorted(kinds)[3:] == [(0, 0, 8), (0, 0, 64), (0, 8, 0), (0, 8, 8), (8, 0, 0)]


def test_more_values_than_rows_are_planted_as_far_as_they_go():
    out = changed(drawn(1, 64), "NaN and ±inf", 1)
    assert int(out.isnan().sum()) == 64 // 8 == int((~out.isfinite()).sum())


def test_real_values_are_distinguished_from_others():
    assert real_valued(drawn(4, 4))
    assert not real_valued(drawn(4, 4).abs())
    assert not real_valued(drawn(4, 4).round())
    assert not real_valued(drawn(4, 4).to(torch.complex64))
