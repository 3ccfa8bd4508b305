import copy
import dataclasses
import math

import pytest
import torch

from kernelllm_judge.policy import Policy
from kernelllm_judge.truth import bounds, numerics
from kernelllm_judge.truth.agreement import agrees
from kernelllm_judge.truth.calls import (
    Float64Mode,
    copied,
    perturb,
    perturbation,
    run_in_float64,
    run_in_half,
    run_original,
    to_float64,
)
from kernelllm_judge.truth.honest import Evaluation
from kernelllm_judge.truth.numerics import compare
from kernelllm_judge.truth.stress import changed
from kernelllm_judge.truth.trivial import passing_trivial_output, trivial_outputs

POLICY = Policy()


def expect(original, exact=None, nearby=(), **how):
    exact = original.double() if exact is None else exact
    return numerics.expect("*", [original], [exact], [[m] for m in nearby], POLICY, **how)


def right(got, expected):
    return compare(got, expected, 0, POLICY, None).passed


def softmax_like(shape=(64, 64), seed=0):
    torch.manual_seed(seed)
    return torch.randn(shape).softmax(-1)


def test_the_original_itself_passes():
    x = softmax_like()
    assert compare(x, expect(x), 0, POLICY, None).passed


def test_one_wrong_element_is_found_and_named():
    x = softmax_like()
    got = x.clone()
    got[3, 5] += 1e-4
    difference = compare(got, expect(x), 0, POLICY, None)
    assert not difference.passed
    assert "at [3, 5]" in difference.detail


def test_a_wrong_output_names_the_bound_that_it_breaks():
    x = softmax_like()
    got, off, small = x.clone(), x.clone(), columns()
    got[3, 5] += 1e-3
    off[4] += 1e-4
    column = small.clone()
    column[:, 5] = 0.0
    moved = x.double()
    moved[3, 5] += 1e-4
    nowhere = x.clone()
    nowhere[0, 0] = math.nan
    for output, expected, tolerance, bound in [
        (got, expect(x), None, bounds.ROUNDING),
        (got, expect(x), 1e-4, bounds.TOLERANCE),
        (got, expect(off, x.double()), None, bounds.ROUNDING),
        (off + 10 * (off - x), expect(off, x.double()), None, bounds.OWN),
        (got, expect(x, nearby=[moved]), None, bounds.SENSITIVITY),
        (column, expect(small), None, bounds.TOGETHER),
        (nowhere, expect(x), None, bounds.PLACES),
    ]:
        difference = compare(output, expected, 0, POLICY, tolerance)
        assert not difference.passed
        assert difference.bound == bound
        assert difference.figures.endswith(f" by {bound}")
    whole = torch.arange(6)
    assert compare(whole + 1, expect(whole, whole), 0, POLICY, None).bound == bounds.EQUALITY


def test_tiny_outputs_are_judged_by_their_own_scale():
    x = softmax_like() * 1e-12
    assert not compare(torch.zeros_like(x), expect(x), 0, POLICY, None).passed
    assert not compare(x * 1.001, expect(x), 0, POLICY, None).passed


def test_a_candidate_may_err_as_the_original_does():
    x = softmax_like()
    noisy = x * (1 + 1e-4 * torch.randn(x.shape))
    exact = x.double()
    also_noisy = x * (1 + 1e-4 * torch.randn(x.shape))
    others = [Evaluation([x * (1 + 1e-4 * torch.randn(x.shape))]) for _ in range(24)]
    assert compare(also_noisy, expect(noisy, exact, evaluations=others), 0, POLICY, None).passed
    assert not compare(also_noisy, expect(x), 0, POLICY, None).passed


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_stray_special_value_is_wrong(value):
    x = softmax_like()
    got = x.clone()
    got[0, 0] = value
    assert not compare(got, expect(x), 0, POLICY, None).passed


def test_special_values_must_stand_where_the_original_has_them():
    x = softmax_like()
    x[0, 0], x[1, 1] = float("nan"), float("-inf")
    assert compare(x.clone(), expect(x), 0, POLICY, None).passed
    swapped = x.clone()
    swapped[1, 1] = float("inf")
    assert not compare(swapped, expect(x), 0, POLICY, None).passed


def overflowing():
    """Element 0 overflows in the original only."""
    exact = torch.full((1, 64), 1000.0, dtype=torch.float64)
    original = exact.half()
    original[0, 0] = float("inf")
    return original, exact


def test_overflow_of_the_original_alone_is_no_example():
    original, exact = overflowing()
    assert right(torch.full((1, 64), 1000.0, dtype=torch.float16), expect(original, exact))
    assert right(original.clone(), expect(original, exact))


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 999.0 * 2, 0.0])
def test_where_the_original_overflows_not_anything_goes(value):
    original, exact = overflowing()
    got = original.clone()
    got[0, 0] = value
    assert not right(got, expect(original, exact))


def test_at_the_edge_of_overflow_rounding_decides():
    exact = torch.full((1, 64), 65519.0, dtype=torch.float64)
    original = torch.full((1, 64), 65504.0, dtype=torch.float16)
    got = original.clone()
    got[0, 0] = float("inf")
    assert right(got, expect(original, exact))
    got[0, 0] = float("-inf")
    assert not right(got, expect(original, exact))


def test_what_overflows_hides_nothing_in_its_row():
    exact = torch.ones(1, 64, dtype=torch.float64)
    exact[0, 0] = 1e60
    original = exact.float()
    got = original.clone()
    assert right(got, expect(original, exact))
    got[0, 5] = 1.001
    assert not right(got, expect(original, exact))


def test_no_number_from_ordinary_inputs_is_judged_only_outside_of_stress():
    original = softmax_like()
    original[0, 0] = float("nan")
    got = original.clone()
    got[0, 0] = 0.5
    assert not right(got, expect(original))
    assert right(got, expect(original, free=True))
    got[0, 1] = float("nan")
    assert not right(got, expect(original, free=True))


def test_what_the_original_alone_overflows_is_judged_only_outside_of_stress():
    exact = softmax_like().double()
    original = exact.float()
    original[0, 0] = float("inf")  # e.g. divided by a norm whose square is too small for float32
    got = original.clone()
    got[0, 0] = 0.0
    assert not right(got, expect(original, exact))
    assert right(got, expect(original, exact, free=True))
    got[0, 1] += 0.1
    assert not right(got, expect(original, exact, free=True))


def test_a_mask_of_the_dtypes_lowest_value_is_compared_as_it_is():
    original = torch.randn(4, 64)
    exact = original.double()
    original[0, 0], exact[0, 0] = torch.finfo(torch.float32).min, torch.finfo(torch.float64).min
    assert right(original.clone(), expect(original, exact))
    got = original.clone()
    got[0, 0] = -1e9
    assert not right(got, expect(original, exact))


def test_large_rows_do_not_hide_small_ones():
    torch.manual_seed(0)
    x = torch.randn(64, 64)
    x[0] *= 1e6
    got = x.clone()
    got[1:] *= 1.001
    assert not right(got, expect(x))
    got[1:] = 0
    assert not right(got, expect(x))


@pytest.mark.parametrize("fill", [-1e4, -65504.0, -1e9, torch.finfo(torch.float32).min])
def test_filled_elements_do_not_hide_the_others_of_their_row(fill):
    torch.manual_seed(0)
    x = torch.randn(16, 64)
    filled = x.masked_fill(torch.rand(16, 64) < 0.3, fill)
    assert right(filled * (1 + 1e-6), expect(filled))
    assert not right(torch.where(filled == fill, filled, filled * 1.0001), expect(filled))


def test_tails_of_a_saturated_row_are_parts_of_numbers_about_one():
    x = torch.tensor([[30.0, -4.0] + [-40.0] * 62])
    exact = torch.nn.functional.gelu(x.double()).clamp(-10, 10)
    rounded = (0.5 * x * (1 + torch.erf(x * 0.5**0.5))).clamp(-10, 10)
    assert float((rounded - exact)[0, 1].abs() / exact[0, 1].abs()) > 1e-5
    assert right(rounded, expect(exact.float(), exact))


def test_one_bad_row_of_the_original_excuses_no_other():
    exact = softmax_like().double()
    original = exact.float()
    original[3] = 0  # overflowed inside, say
    assert right(original.clone(), expect(original, exact))
    got = exact.float()
    assert right(got, expect(original, exact))
    got[4] *= 1.001
    assert not right(got, expect(original, exact))


@pytest.mark.parametrize("width", [4, 8, 31])
@pytest.mark.parametrize("factor", [0.0, 1.04])
def test_one_bad_short_row_of_the_original_excuses_no_other(width, factor):
    torch.manual_seed(0)
    exact = torch.randn(64, width).double().softmax(-1)
    original = exact.float()
    original[3] *= factor
    got = exact.float()
    assert right(got, expect(original, exact))
    got[4] *= 1.01
    assert not right(got, expect(original, exact))


@pytest.mark.parametrize("noise", [0.001, 0.03, 1.0])
def test_a_few_bad_columns_of_the_original_excuse_no_other(noise):
    """As rows of equal numbers are for a norm, where its output is transposed."""
    torch.manual_seed(0)
    exact = torch.randn(64, 64, dtype=torch.float64)
    original = exact.float()
    original[:, ::8] *= 1 + noise * torch.randn(64, 8)
    got = exact.float()
    got[:, ::8] = original[:, ::8]
    assert right(got, expect(original, exact))
    got[:, 9] *= 1 + 1e-4
    assert not right(got, expect(original, exact))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [16, 64])
def test_bad_columns_of_the_original_excuse_no_others_even_if_most_are(dtype, rows):
    """As sines of large angles beside a product: what others have is no chance in a column of many rows."""
    torch.manual_seed(0)
    exact = torch.randn(rows, 64, dtype=torch.float64)
    original = exact.clone()
    original[:, 16:] *= 1 + 0.03 * torch.randn(rows, 48)
    original = original.to(dtype)
    got = original.clone()
    assert right(got, expect(original, exact))
    got[:, :16] *= 1.1
    assert not right(got, expect(original, exact))


@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_a_column_of_nothing_but_noise_excuses_no_other(noise):
    torch.manual_seed(0)
    exact = torch.randn(64, 64, dtype=torch.float64)
    exact[:, 5] = 0
    original = exact.float()
    original[:, 5] = noise * torch.randn(64)
    got = exact.float()
    assert right(got, expect(original, exact))
    got[:, 6] *= 1 + 1e-4
    assert not right(got, expect(original, exact))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_four_roundings_are_right_and_a_sum_that_is_kept_in_half_precision_is_not(dtype):
    """Which a bound on the largest error alone does not tell: it is below 1.5 eps."""
    torch.manual_seed(0)
    parts = torch.randn(4, 256, 256, dtype=torch.float64)
    exact, kept = parts.sum(0), parts[0].to(dtype)
    for part in parts[1:]:
        kept = (kept.double() + part.to(dtype).double()).to(dtype)
    expected = expect(exact.to(dtype), exact)
    twice = ((exact / 3).to(dtype).double() * 3).to(dtype)
    assert right(twice, expected)
    found = compare(kept, expected, 0, POLICY, None)
    assert not found.passed
    assert found.bound == bounds.TOGETHER


def test_a_product_of_matrices_may_cancel():
    torch.manual_seed(0)
    a, b = torch.randn(64, 1024), torch.randn(1024, 64)
    by_columns = sum(a[:, i : i + 32] @ b[i : i + 32] for i in range(0, 1024, 32))
    assert right(by_columns, expect(a @ b, a.double() @ b.double()))
    lossy = (a.bfloat16().float()) @ b
    assert not right(lossy, expect(a @ b, a.double() @ b.double()))


def test_a_problem_that_amplifies_rounding_excuses_rounding():
    torch.manual_seed(0)
    x = 1000 + torch.randn(8, 64)

    def centred(value):
        return value - value.mean(-1, keepdim=True)

    exact = centred(x.double())
    rounded = exact.float() + 1e-5 * torch.randn(8, 64)  # a float32 mean of numbers near 1000 errs so
    nearby = [centred(perturbation(8 * 1.2e-7 * way, 1, x.device)(x)) for way in (1, -1)]
    assert not right(rounded, expect(exact.float(), exact))
    assert right(rounded, expect(exact.float(), exact, nearby))
    assert not right(exact.float() + 0.1, expect(exact.float(), exact, nearby))


def test_a_step_may_fall_where_rounding_puts_it():
    torch.manual_seed(0)
    x = torch.randn(64, 64)
    x[0, 0] = 2.5 / 3 * (1 + 1e-8)

    def quantised(value):
        return (value * 3).round()

    nearby = [quantised(perturbation(8 * 1.2e-7 * way, 1, x.device)(x)) for way in (1, -1)]
    expected = expect(quantised(x), quantised(x.double()), nearby)
    got = quantised(x)
    got[0, 0] = 5 - got[0, 0]
    assert right(got, expected)
    got[1, 1] += 1
    assert not right(got, expected)


def with_jumps(exact, rows, off=0.2):
    """Half precision, and some rows that are far off: an attention that takes another key."""
    value = exact.bfloat16()
    for row in rows:
        value[row] += off * torch.randn(exact.shape[1], generator=torch.Generator().manual_seed(row))
    return value


def jumping(exact, runs, **how):
    """What is expected where these rows jump in further runs of the original."""
    found = [Evaluation([with_jumps(exact, rows)], [exact]) for rows in runs]
    return expect(exact.bfloat16(), exact, evaluations=found, **how)


EXACT = torch.randn(256, 128, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TWICE = ([3], [40], [], [41], [3, 42], []) * 2
ONCE = [[row] for row in range(12)]


def test_rows_may_jump_that_do_in_the_originals_own_runs():
    expected = jumping(EXACT, TWICE)
    assert right(with_jumps(EXACT, [3, 40, 41, 42]), expected)
    assert not right(with_jumps(EXACT, [11, 40]), expected)
    assert not right(with_jumps(EXACT, [40], off=4.0), expected)


def test_others_may_jump_where_each_run_has_others():
    expected = jumping(EXACT, ONCE)
    assert right(with_jumps(EXACT, [100, 101, 102]), expected)
    assert not right(with_jumps(EXACT, range(100, 106)), expected)
    assert not right(with_jumps(EXACT, [100], off=4.0), expected)
    assert not right(with_jumps(EXACT, [100]), jumping(EXACT, ONCE[:8]))  # too few runs tell nothing


def test_rows_jump_beside_a_row_that_is_not_finite():
    overflowing = EXACT.clone()
    overflowing[7] = 1e39
    expected = jumping(overflowing, TWICE, free=True)
    got = with_jumps(overflowing, [40])
    assert not bool(got.isfinite().all())
    assert right(got, expected)
    assert not right(with_jumps(overflowing, [11]), expected)
    got[8, 0] = float("inf")
    assert not right(got, expected)


def test_a_few_elements_at_a_step_are_no_row():
    exact = EXACT.sign()
    runs = [exact.bfloat16() for _ in range(12)]
    for number, run in enumerate(runs):
        run[number, 5 * number] *= -1
    expected = expect(exact.bfloat16(), exact, evaluations=[Evaluation([run], [exact]) for run in runs])
    got = exact.bfloat16()
    got[100, 7] *= -1
    got[101, 70] *= -1
    assert right(got, expected)
    got[102] *= -1
    assert not right(got, expected)


def test_a_row_that_is_further_off_is_not_hidden_by_one_that_jumps():
    got = with_jumps(EXACT, [40])
    got[3, 5] = 5000
    assert not right(got, jumping(EXACT, TWICE))


def test_a_column_that_is_off_is_not_hidden_by_a_row_that_jumps():
    expected = jumping(EXACT, TWICE)
    got = EXACT.bfloat16()
    got[:, 5] *= 1.1
    assert not right(got, expected)
    got[40] = with_jumps(EXACT, [40])[40]
    assert not right(got, expected)


def test_what_a_gpu_flushes_to_zero_may_be_zero():
    exact = torch.full((2, 64), 1e-39, dtype=torch.float64)
    assert right(torch.zeros(2, 64), expect(exact.float(), exact))


def test_short_rows_are_judged_together():
    torch.manual_seed(0)
    x = torch.randn(1000, 1)
    assert right(x + 1e-6, expect(x))
    assert not right(x + 1e-5, expect(x))


STEP = POLICY.conditioning_eps * torch.finfo(torch.float32).eps


def closely(function, x, *weights):
    """What is expected of a function where its runs at inputs with other last digits are known, as ``Truth`` makes them."""

    def exactly(move):
        return function(move(x), *map(move, weights))

    ways = [perturbation(way * STEP, seed, x.device) for way, seed in ((1, 0), (-1, 0), (1, 1), (1, 2))]
    found = []
    for seed in range(POLICY.honest_runs):
        visible = perturbation(STEP, seed, x.device, visible=True)
        near = visible(x).to(x.dtype)
        found.append(
            Evaluation([function(near, *weights)], [function(near.double(), *(w.double() for w in weights))])
        )
    return expect(function(x, *weights), exactly(to_float64), map(exactly, ways), evaluations=found)


def gated(x, gate, up, down):
    """A gated layer, as the original computes it, and with one rounding less as a kernel that fuses its activation."""
    wide = torch.promote_types(x.dtype, torch.float32)

    def product(a, b):
        return (a.to(wide) @ b.to(wide)).to(x.dtype)

    g, u = product(x, gate), product(x, up)
    fused = (torch.nn.functional.silu(g.to(wide)) * u.to(wide)).to(x.dtype)
    return [product(hidden, down) for hidden in (torch.nn.functional.silu(g) * u, fused)]


def test_a_column_of_equal_rows_has_one_error_which_may_be_small_by_chance():
    torch.manual_seed(0)
    weights = [torch.randn(shape).bfloat16() / 16 for shape in ((256, 512), (256, 512), (512, 8192))]
    x = torch.randn(1, 256).bfloat16().expand(16, -1).contiguous()
    _, fused = gated(x, *weights)
    expected = closely(lambda *given: gated(*given)[0], x, *weights)
    assert right(fused, expected)
    wrong = fused.clone()
    wrong[:, 17] *= 1.5
    assert not right(wrong, expected)


@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 0.01), (torch.bfloat16, 1.0)])
def test_small_columns_of_equal_rows_are_held_to_the_errors_of_small_ones(dtype, off):
    torch.manual_seed(0)
    exact = torch.logspace(-12, 0, 4096, dtype=torch.float64).expand(16, -1).contiguous()
    original = (exact * (1 + 0.3 * torch.finfo(dtype).eps * torch.randn(4096).double())).to(dtype)
    expected = expect(original, exact)
    wrong = original.clone()
    wrong[:, 2500:2600] *= 1 + off  # about 3e-5
    assert right(original, expected)
    assert not right(wrong, expected)


@pytest.mark.parametrize("seed", range(5))
def test_a_column_of_a_few_large_rows_may_be_off_as_columns_about_as_large_are(seed):
    """Where cuBLAS splits a sum, it adds up the parts in half precision; with few rows it does."""
    torch.manual_seed(seed)
    x = torch.randn(16, 2048).bfloat16()
    x[::8] *= 1000
    weight = torch.randn(2048, 8192).bfloat16() / 64

    def in_parts(x, weight):
        return x @ weight if x.dtype == torch.float64 else product_in_parts(x, weight, 4, torch.bfloat16)

    # Rounded inside as the original is not, and added up exactly.
    got = ((x.float() * (1 + torch.randn(x.shape) / 512)).bfloat16().float() @ weight.float()).bfloat16()
    assert right(got, closely(in_parts, x, weight))


@pytest.mark.parametrize(
    ("rows", "stressed", "seed"), [(16, "low-row", 0), (16, "low-row", 5), (12, "mixed-row", 2)]
)
def test_a_column_that_nearly_cancels_in_the_rows_that_decide_may_be_off_as_all_rows_tell(
    rows, stressed, seed
):
    """Products of bfloat16, added up in parts that are rounded: where cuBLAS does not, the original's error may be 0 by chance."""
    random = torch.Generator().manual_seed(seed)
    gate, up, down = (
        (torch.randn(shape, generator=random) / math.sqrt(shape[0])).bfloat16()
        for shape in ((1024, 2048), (1024, 2048), (2048, 1024))
    )
    x = changed(torch.randn(rows, 1024, generator=random).bfloat16(), stressed, seed)
    halves = (product_in_parts(x, weight, 2, torch.bfloat16) for weight in (gate, up))
    hidden = (torch.nn.functional.silu(next(halves).float()) * next(halves).float()).bfloat16()
    expected = closely(lambda *given: gated(*given)[0], x, gate, up, down)
    assert right(product_in_parts(hidden, down, 4, torch.bfloat16), expected)


def product_in_parts(a, b, parts, dtype):
    """A product of bfloat16 whose sum is split, each part rounded to ``dtype``."""
    split = zip(a.chunk(parts, 1), b.chunk(parts), strict=True)
    return sum((x.float() @ y.float()).to(dtype) for x, y in split).bfloat16()


@pytest.mark.parametrize("rows", [64, 256])
def test_the_last_columns_of_a_causal_matrix_have_few_elements_and_no_usual_error(rows):
    torch.manual_seed(0)
    x, weight, places = torch.randn(rows, 64), torch.randn(64, 192) / 8, torch.randn(rows, 64)

    def beside(x, weight, places):
        return torch.cat([places * 32, x @ weight * 32, torch.tril(x @ x.T / 1024)], 1)

    given = [each.bfloat16() for each in (x, weight, places)]
    original, exact = beside(*given), beside(*(each.double() for each in given))
    got = original.clone()
    assert right(got, expect(original, exact))
    got[:, -1] = 0
    assert not right(got, expect(original, exact))


def test_columns_that_float32_flushes_to_zero_hide_no_others():
    torch.manual_seed(0)
    x = torch.randn(16, 64, dtype=torch.float64)
    flushed = torch.exp(-(torch.randn(16, 512, dtype=torch.float64) * 20 + 512))
    exact = torch.cat([flushed, x @ torch.randn(64, 16).double() * 1e6, torch.tanh(x)], 1)
    got = exact.float()
    assert right(got, expect(exact.float(), exact))
    got[:, -1] *= 1.1
    assert not right(got, expect(exact.float(), exact))


@pytest.mark.parametrize("seed", range(3))
def test_sparse_columns_of_a_softmax_may_be_off_as_others_about_as_large_are(seed):
    random = torch.Generator().manual_seed(seed)
    x, first, second = (
        (torch.randn(shape, generator=random) / scale).bfloat16()
        for shape, scale in (((16, 512), 1), ((512, 512), 512**0.5), ((512, 1024), 512**0.5))
    )

    def scores(x, first, second, parts=2, dtype=torch.bfloat16):
        if x.dtype == torch.float64:
            return ((x @ first).relu() @ second * 8).softmax(1)
        hidden = product_in_parts(x, first, parts, dtype).relu()
        return (product_in_parts(hidden, second, parts, dtype) * 8).softmax(1)

    expected = closely(scores, x, first, second)
    assert right(scores(x, first, second, 1, torch.float32), expected)


@pytest.mark.parametrize("large", [1, 4, 12])
def test_columns_that_stay_small_in_large_rows_are_not_excused_by_those_that_do_not(large):
    torch.manual_seed(0)
    x = torch.randn(16, 512).bfloat16()
    x[:large] *= 1000
    weight = torch.randn(512, 512).bfloat16() / 16
    exact = torch.cat([x.double() @ weight.double(), torch.tanh(x.double())], 1)
    original = exact.bfloat16()
    got = original.clone()
    assert right(got, expect(original, exact))
    got[:, 700] *= 1.1
    assert not right(got, expect(original, exact))


def test_a_constant_column_that_the_original_gives_exactly_is_held_to_its_own_scale():
    torch.manual_seed(0)
    exact = torch.randn(64, 64, dtype=torch.float64)
    exact[:, 5] = 2.0**-18
    expected = expect(exact.float(), exact)
    got = exact.float()
    assert right(got.clone(), expected)
    got[:, 5] = 0
    assert not right(got, expected)


def test_comparing_in_pieces_changes_nothing():
    torch.manual_seed(0)
    exact = torch.randn(37, 64, dtype=torch.float64)
    original = exact.float()
    got = original + 3e-5 * (torch.rand(37, 64) > 0.99)
    pieces = dataclasses.replace(POLICY, chunk_elements=200)
    findings = []
    for policy in (POLICY, pieces):
        nearby = [[perturbation(1e-6, 1, exact.device)(exact)]]
        expected = numerics.expect("*", [original], [exact.clone()], nearby, policy)
        findings.append(compare(got, expected, 0, policy, None))
    assert findings[0] == findings[1]
    assert not findings[0].passed


def test_without_float64_the_original_is_the_measure_and_the_note_says_so():
    x = softmax_like()
    expected = numerics.expect("*", [x], None, [], POLICY, note="as it is")
    assert compare(x * (1 + 2e-6), expected, 0, POLICY, None).detail == "as it is"
    assert right(x * (1 + 2e-6), expected)
    assert not right(x * (1 + 1e-4), expected)


@pytest.mark.parametrize("shape", [(), (1,), (0, 4), (3, 0), (1, 1, 1)])
def test_small_and_empty_outputs_are_compared(shape):
    torch.manual_seed(0)
    x = torch.randn(shape)
    expected = expect(x, nearby=[x.double() * (1 + 1e-6)])
    assert right(x.clone(), expected)
    assert right(x + 1e-2, expected) is (x.numel() == 0)


def test_integers_must_be_equal():
    x = torch.arange(10)
    assert compare(x.clone(), expect(x, x.clone()), 0, POLICY, None).passed
    difference = compare(x + (x == 7), expect(x, x.clone()), 0, POLICY, None)
    assert not difference.passed
    assert "at [7]: expected 7, got 8" in difference.detail


def test_an_integer_that_rounding_decides_may_be_either():
    x, nearby = torch.arange(10), torch.arange(10)
    nearby[3] = 4
    expected = expect(x, x.clone(), [nearby, x.clone()])
    assert right(x.clone(), expected)
    assert right(nearby.clone(), expected)
    got = x.clone()
    got[3] = 5
    assert not right(got, expected)


def test_booleans_must_be_equal():
    x = torch.arange(10) > 4
    assert right(x.clone(), expect(x, x.clone()))
    assert not right(~x, expect(x, x.clone()))


def test_the_tolerance_override_counts():
    x = softmax_like()
    assert compare(x * 1.001, expect(x), 0, POLICY, 1e-2).passed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_one_rounding_of_a_half_precision_result_is_allowed(dtype):
    exact = softmax_like().double()
    original = exact.to(dtype)
    step = torch.finfo(dtype).eps
    assert compare((exact * (1 + 0.1 * step)).to(dtype), expect(original, exact), 0, POLICY, None).passed
    assert not compare((exact * (1 + 8 * step)).to(dtype), expect(original, exact), 0, POLICY, None).passed


def test_every_trivial_output_of_an_ordinary_module_is_caught():
    x = torch.randn(32, 32)
    expected = expect(torch.nn.functional.gelu(x))
    half = [torch.nn.functional.gelu(x.bfloat16())]
    names = []
    for name, outputs in trivial_outputs(
        expected, {"x": x}, [torch.nn.functional.gelu(torch.randn(32, 32))], half
    ):
        names.append(name)
        assert not compare(outputs[0], expected, 0, POLICY, None).passed, name
    assert names == [
        "zeros",
        "ones",
        "the mean",
        "another input's output",
        "the mean of two inputs' outputs",
        "`x` passed through",
        "the original at half precision",
    ]


def test_the_identity_cannot_be_distinguished_from_its_input():
    x = torch.randn(8, 8)
    tried = trivial_outputs(expect(x), {"x": x}, [torch.randn(8, 8)], None)
    caught = {name: not compare(outputs[0], expect(x), 0, POLICY, None).passed for name, outputs in tried}
    assert caught["`x` passed through"] is False


def test_one_output_may_not_pass_for_two_inputs():
    x = torch.randn(32, 32)
    other = x * 1.25  # neither passes for the other, and what lies between them passes for both
    tried = passing_trivial_output(expect(x), {}, [other], None, POLICY, 0.15)
    assert tried == "the mean of two inputs' outputs"
    assert passing_trivial_output(expect(x), {}, [x * 1.6], None, POLICY, 0.15) is None


def test_a_trivial_output_that_passes_is_named():
    x = torch.randn(8, 8)
    assert (
        passing_trivial_output(expect(x), {"x": x}, [torch.randn(8, 8)], None, POLICY, None)
        == "`x` passed through"
    )
    half = [x.sin().bfloat16()]
    assert passing_trivial_output(expect(x.sin()), {"x": x}, None, half, POLICY, None) is None
    assert (
        passing_trivial_output(expect(x.sin()), {"x": x}, None, half, POLICY, 0.1)
        == "the original at half precision"
    )


class CastsToSingle(torch.nn.Module):
    """Requests float32 by name, as LlamaRMSNorm does."""

    def forward(self, x):
        y = x.to(torch.float32)
        return (y * y.mean(-1, keepdim=True)).to(x.dtype)


def test_float64_holds_where_a_module_asks_for_less():
    torch.manual_seed(0)
    x = torch.randn(4, 1000)
    [exact] = run_in_float64(copied(CastsToSingle(), to_float64), {"x": x})
    assert exact.dtype == torch.float64
    expected = x.double() * x.double().mean(-1, keepdim=True)
    assert torch.equal(exact, expected)
    with Float64Mode():
        assert torch.arange(3, dtype=torch.float32).dtype == torch.float64


def test_the_original_runs_as_it_is_and_at_half_precision():
    x = torch.randn(4, 8)
    structure, [out] = run_original(torch.nn.Softmax(-1), {"input": x})
    assert structure == "*"
    assert torch.equal(out, x.softmax(-1))
    assert run_in_half(torch.nn.Softmax(-1), {"input": x})[0].dtype == torch.bfloat16


def test_nothing_is_run_at_half_precision_that_is_so_already():
    assert run_in_half(torch.nn.Softmax(-1), {"input": torch.randn(4, 8).bfloat16()}) is None


def test_perturbation_changes_every_parameter_and_keeps_its_meaning():
    norm = perturb(torch.nn.BatchNorm1d(16), 1)
    assert bool((norm.weight != 1).all())
    assert bool((norm.weight > 0).all())
    assert bool((norm.bias != 0).all())
    assert bool((norm.running_var > 0).all())
    assert bool((norm.running_mean != 0).any())
    assert norm.num_batches_tracked == 0


def test_every_element_of_a_large_parameter_is_perturbed():
    fresh = torch.nn.Linear(300, 300)
    assert bool((perturb(copy.deepcopy(fresh), 1).weight != fresh.weight).all())
    nearby = perturbation(1e-6, 1, torch.device("cpu"))(fresh.weight.detach())
    relative = (nearby / fresh.weight.detach().double() - 1).abs()
    assert 0.4e-6 < float(relative.min()) < float(relative.max()) < 1.6e-6


class Tied(torch.nn.Module):
    """One weight under two names, and one in a list."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.b = torch.nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.all = [self.a.weight]

    def forward(self, x):
        return self.b(self.a(x)) * self.all[0].sum()


def test_a_copys_tied_weights_stay_one():
    tied = perturb(Tied(), 1)
    assert tied.a.weight is tied.b.weight is tied.all[0]
    assert isinstance(tied.a.weight, torch.nn.Parameter)
    x = torch.randn(2, 4)
    [exact] = run_in_float64(copied(tied, to_float64), {"x": x})
    torch.testing.assert_close(exact.float(), tied(x).detach())


class Counts(torch.nn.Module):
    """Changes itself and its input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.seen = None

    def forward(self, x):
        self.calls += 1
        self.seen = x
        return x.add_(1) * self.calls


def test_running_the_original_leaves_it_and_its_inputs_as_they_were():
    module, x = Counts(), torch.zeros(3)
    for _ in range(2):
        assert torch.equal(run_original(module, {"x": x})[1][0], torch.ones(3))
        assert torch.equal(run_in_float64(copied(module, to_float64), {"x": x})[0], torch.ones(3).double())
    assert module.seen is None
    assert float(module.calls) == 0
    assert torch.equal(x, torch.zeros(3))


def test_a_single_number_is_distinguished_from_another_inputs():
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    expected = expect(x.mean())
    tried = dict(trivial_outputs(expected, {"x": x}, [y.mean()], None))
    assert set(tried) == {"zeros", "ones", "another input's output", "the mean of two inputs' outputs"}
    assert not compare(tried["another input's output"][0], expected, 0, POLICY, None).passed


def test_long_sums_may_drift_and_short_ones_may_not():
    exact = torch.tensor(1.0, dtype=torch.float64)
    drifted = torch.tensor(1.0) + 400 * torch.finfo(torch.float32).eps
    for elements, passes in ((1_000_000, True), (10_000, False)):
        expected = numerics.expect("*", [torch.tensor(1.0)], [exact.clone()], [], POLICY, elements=elements)
        assert compare(drifted, expected, 0, POLICY, None).passed is passes


def columns():
    torch.manual_seed(0)
    return torch.randn(40, 6) * torch.tensor([1e3, 30.0, 1.0, 0.1, 1e-3, 1e-4])


@pytest.mark.parametrize("value", [0.0, 1e-4])
def test_a_small_column_is_judged_by_its_own_scale(value):
    x = columns()
    got = x.clone()
    got[:, 5] = value
    difference = compare(got, expect(x), 0, POLICY, None)
    assert not difference.passed
    assert "in column 5 as a whole" in difference.detail
    assert right(x * (1 + 1e-7), expect(x))


def test_what_is_wrong_in_a_column_of_zeros_is_said_to_be_zero():
    x = columns()
    x[:, 5] = 0
    got = x.clone()
    got[:, 5] = 1e-11
    detail = compare(got, expect(x), 0, POLICY, None).detail
    assert detail == "in column 5 as a whole, whose values are 0"


def test_what_float64_rounds_to_zero_may_come_out():
    x = columns()
    x[:, 5] = -torch.arange(9.0, 13.0, 0.1)
    original, exact = ((y * (1 + torch.erf(y / 2**0.5)) / 2) for y in (x, x.double()))
    got = original.clone()
    got[:, 5] = x[:, 5] * torch.special.erfc(-x[:, 5] / 2**0.5) / 2  # the same, and what it is in truth
    assert not original[:, 5].any()
    assert not exact[:, 5].any()
    assert got[:, 5].all()
    assert right(got, expect(original, exact))


@pytest.mark.parametrize("shape", [(), (1, 1), (3, 1), (1, 64), (5, 64)])
def test_what_float64_rounds_to_zero_in_all_of_a_row_may_come_out(shape):
    x = torch.full(shape, -8.0)
    if len(shape) == 2 and shape[0] > 1:
        x[0] = torch.randn(shape[1])
    exact, tail = 1 + torch.erf(x.double()), torch.special.erfc(-x)
    assert not exact.reshape(-1)[-1]
    assert tail.reshape(-1)[-1]
    expected = expect((1 + torch.erf(x)), exact)
    assert right(tail, expected)
    tail.view(-1)[-1] = 1e-14
    assert not right(tail, expected)


def test_a_row_of_zeros_is_as_exact_as_the_output_is_small():
    x = softmax_like() * 1e-12
    x[3] = 0
    got = x.clone()
    got[3] = 1e-29
    assert right(got, expect(x))
    got[3] = 1e-27
    assert not right(got, expect(x))
    assert right(got, expect(x, usual=lambda leaf: 1.0))


@pytest.mark.parametrize("shape", [(1,), (2, 64)])
def test_what_overflows_is_no_row_of_zeros(shape):
    exact = torch.full(shape, 1e40, dtype=torch.float64)
    expected = expect(exact.float(), exact)
    for value in (0.0, -5.0, 3e38, math.nan, -math.inf):
        assert not right(torch.full(shape, value), expected), value
    assert right(exact.float(), expected)


@pytest.mark.parametrize("width", [8, 256])
@pytest.mark.parametrize("factor", [1, 30])
def test_what_float64_rounds_to_zero_in_some_columns_of_equal_rows_may_come_out(width, factor):
    for seed in range(20):
        z = 2.5 * (factor * torch.randn(width, generator=torch.Generator().manual_seed(seed)) - 0.7)
        z[0] = -8.5
        original, exact = (
            ((1 + torch.erf(x / 2**0.5)) / 2).expand(64, width).contiguous() for x in (z, z.double())
        )
        truth = torch.special.erfc(-z.double() / 2**0.5) / 2
        got = truth.float().expand(64, width).contiguous()
        assert not exact[:, 0].any()
        assert got[:, 0].all()
        assert right(got, expect(original, exact.clone()))
        got[:, 0] = 1e-15
        assert not right(got, expect(original, exact))


@pytest.mark.parametrize("factor", [0.0, 1e-6])
def test_what_float64_rounds_to_zero_may_come_out_where_most_rows_are_nothing(factor):
    generator = torch.Generator().manual_seed(2)
    rows = torch.ones(100, 1, dtype=torch.float64)
    rows[:60] = factor
    x = torch.randn(100, 64, generator=generator)
    x[:, 5] = -6.2 - torch.rand(100, generator=generator)
    exact = rows * (1 + torch.erf(x.double()))
    original = rows.float() * (1 + torch.erf(x))
    got = (rows * torch.special.erfc(-x.double())).float()
    assert got[:, 5].any()
    assert right(got, expect(original, exact.clone()))
    got[70, 5] = 1e-12
    assert not right(got, expect(original, exact))


@pytest.mark.parametrize("width", [8, 33, 256])
@pytest.mark.parametrize("huge", [1e9, 1e12, 1e20, 3e38])
def test_what_is_huge_in_a_few_places_lets_no_zero_be_anything(width, huge):
    original = torch.randn(64, width, generator=torch.Generator().manual_seed(1))
    original[:, 2] = 0
    columns, rows = original.clone(), original.clone()
    columns[:, 4:8] = -huge * torch.tensor([1.0, 0.5, 0.25, 0.125])  # several masks, say
    rows[3:9] *= huge / 10
    for output in (columns, rows):
        got = output.clone()
        got[:, 2] = 1e-3 if huge > 1e9 else 1e-6
        assert right(output, expect(output))
        assert not right(got, expect(output))


def test_small_columns_of_half_precision_are_judged_by_their_own_scale():
    for dtype in (torch.float16, torch.bfloat16):
        exact = torch.randn(64, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        exact[:, 7] *= 4e-4
        original = exact.to(dtype)
        assert right(original, expect(original, exact.clone()))
        for factor in (0, -1, 3):
            got = original.clone()
            got[:, 7] *= factor
            assert not right(got, expect(original, exact.clone()))


def test_a_mask_leaves_the_bounds_of_other_elements_as_they_are():
    lowest = [torch.finfo(kind).min for kind in (torch.float32, torch.float64)]
    original = torch.randn(32, 33)
    original[:, 0] = 0
    exact = original.double()
    original[:, 29:], exact[:, 29:] = lowest
    nearby = exact * (1 - 1e-6)
    expected = expect(original, exact.clone(), nearby=[nearby])
    assert right(original, expected)
    for column, value in ((0, 1e-3), (0, 1e20), (1, 1e33)):
        got = original.clone()
        got[:, column] += value
        assert not right(got, expected)


def test_a_short_row_is_judged_by_its_own_scale():
    x = columns().t().contiguous()[:, :6]
    got = x.clone()
    got[5] = 0
    assert "in row 5 as a whole" in compare(got, expect(x), 0, POLICY, None).detail


def test_a_column_may_err_as_perturbed_inputs_make_it():
    x = columns()
    nearby = x.double()
    nearby[:, 5] += 3e-6
    got = x.clone()
    got[:, 5] += 2e-6
    assert not right(got, expect(x))
    assert right(got, expect(x, nearby=[nearby]))


def test_numbers_whose_squares_overflow_are_compared():
    torch.manual_seed(0)
    x = torch.randn(8, 40, dtype=torch.float64) * 1e200
    assert right(x, expect(x))
    assert not right(x * 1.001, expect(x))
    assert not right(torch.zeros_like(x), expect(x))


def test_what_agrees_in_each_element_may_be_off_together():
    original = torch.randn(4096, 64)
    original[:, 5] *= 1e-4
    got = original.clone()
    got[:, 5] *= 1 + 1e-4  # far below each row's rounding error
    assert not agrees(got, original, POLICY)
    got = original * (1 + 4 * torch.finfo(torch.float32).eps)
    assert agrees(got, original, POLICY)


@pytest.mark.parametrize("seed", range(40))
def test_what_agrees_is_right(seed):
    draw = torch.Generator().manual_seed(seed)
    exact = torch.randn(48, 64, dtype=torch.float64, generator=draw)
    own, near, off = (10 ** (-6 + 3 * float(torch.rand((), generator=draw))) for _ in range(3))
    noise = [torch.randn(48, 64, dtype=torch.float64, generator=draw) for _ in range(3)]
    original = (exact * (1 + own * noise[0])).float()
    steps = near * (noise[1].sign() if seed % 2 else exact * noise[1])
    expected = expect(original, exact, nearby=[exact + steps])
    for share in (0.03, 0.1, 0.3, 1.0, 3.0):
        steps = share * off * (noise[2].sign() if seed % 3 else original.double() * noise[2])
        got = (original.double() + steps).float()
        if agrees(got, original, POLICY):
            assert right(got, expected)


def test_the_mean_of_ever_so_many_numbers_is_right_to_five_digits():
    """Kernels add up in blocks, so a loss of 2^27 terms may drift no further than 2^16 additions do."""
    loss = torch.tensor(1.5)
    assert right(loss * (1 + 2e-5), expect(loss, elements=1 << 27))
    assert not right(loss * (1 + 1e-4), expect(loss, elements=1 << 27))
    products = Evaluation([loss], None, 1 << 21)
    assert right(loss * (1 + 1e-4), expect(loss, elements=1 << 27, evaluations=[products]))


@pytest.mark.parametrize("elements, trivial", [(64, "the original at half precision"), (1 << 27, None)])
def test_a_number_that_half_precision_gives_by_chance_shows_no_precision(elements, trivial):
    number = torch.tensor(1.5)
    expected = expect(number, elements=elements)
    assert passing_trivial_output(expected, {}, None, [number.bfloat16()], POLICY, None) == trivial


def test_errors_of_other_implementations_count_as_the_originals_own():
    exact = torch.randn(64, 64, dtype=torch.float64)
    other = (exact * (1 + 1e-5 * torch.randn(64, 64))).float()
    assert not right(other, expect(exact.float(), exact))
    assert right(other, expect(exact.float(), exact, evaluations=[Evaluation([other])]))


def test_a_wrong_number_for_an_infinity_is_not_shown_beside_that_of_float64():
    exact = softmax_like().double()
    original = exact.float()
    original[0, 0], exact[0, 0] = float("inf"), float("nan")
    got = original.clone()
    got[0, 0] = float("nan")
    found = compare(got, expect(original, exact), 0, POLICY, None)
    assert not found.passed and found.detail == "at [0, 0]: expected inf, got nan"
