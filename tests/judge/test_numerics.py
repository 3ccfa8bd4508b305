import pytest
import torch

from pytest_kernelllm.judge.numerics import Expected, compare, conditioning, impostors
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.reference import Float64Mode, run_in_float64, run_in_half, run_original, shake

POLICY = Policy()


def expect(original, exact=None):
    exact = original.double() if exact is None else exact
    return Expected("*", (original,), (exact,), (0.0,))


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


def test_tiny_outputs_are_judged_by_their_own_scale():
    x = softmax_like() * 1e-12
    assert not compare(torch.zeros_like(x), expect(x), 0, POLICY, None).passed
    assert not compare(x * 1.001, expect(x), 0, POLICY, None).passed


def test_a_candidate_may_err_as_the_original_does():
    x = softmax_like()
    noisy = x * (1 + 1e-4 * torch.randn(x.shape))
    exact = x.double()
    also_noisy = x * (1 + 1e-4 * torch.randn(x.shape))
    assert compare(also_noisy, Expected("*", (noisy,), (exact,), (0.0,)), 0, POLICY, None).passed
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


def test_overflow_of_the_original_alone_is_no_example():
    exact = torch.full((4,), 1000.0, dtype=torch.float64)
    original = torch.tensor([float("inf"), 1000, 1000, 1000], dtype=torch.float16)
    got = torch.full((4,), 1000.0, dtype=torch.float16)
    assert compare(got, expect(original, exact), 0, POLICY, None).passed


def test_integers_must_be_equal():
    x = torch.arange(10)
    assert compare(x.clone(), expect(x), 0, POLICY, None).passed
    difference = compare(x + (x == 7), expect(x), 0, POLICY, None)
    assert not difference.passed
    assert "at [7]: expected 7, got 8" in difference.detail


def test_the_tolerance_override_counts():
    x = softmax_like()
    assert compare(x * 1.001, expect(x), 0, POLICY, 1e-2).passed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_one_rounding_of_a_half_precision_result_is_allowed(dtype):
    exact = softmax_like().double()
    original = exact.to(dtype)
    step = torch.finfo(dtype).eps
    assert compare((exact * (1 + 0.4 * step)).to(dtype), expect(original, exact), 0, POLICY, None).passed
    assert not compare((exact * (1 + 8 * step)).to(dtype), expect(original, exact), 0, POLICY, None).passed


def test_every_impostor_of_an_ordinary_output_is_caught():
    x = torch.randn(32, 32)
    expected = expect(torch.nn.functional.gelu(x))
    half = [torch.nn.functional.gelu(x.bfloat16())]
    names = []
    for name, outputs in impostors(expected, {"x": x}, [torch.nn.functional.gelu(torch.randn(32, 32))], half):
        names.append(name)
        assert not compare(outputs[0], expected, 0, POLICY, None).passed, name
    assert names == [
        "zeros",
        "ones",
        "the mean",
        "another input's output",
        "`x` passed through",
        "the original at half precision",
    ]


def test_the_identity_cannot_be_told_from_its_input():
    x = torch.randn(8, 8)
    tried = impostors(expect(x), {"x": x}, [torch.randn(8, 8)], None)
    caught = {name: not compare(outputs[0], expect(x), 0, POLICY, None).passed for name, outputs in tried}
    assert caught["`x` passed through"] is False


class CastsToSingle(torch.nn.Module):
    """Asks for float32 by name, as LlamaRMSNorm does."""

    def forward(self, x):
        y = x.to(torch.float32)
        return (y * y.mean(-1, keepdim=True)).to(x.dtype)


def test_float64_holds_where_a_module_asks_for_less():
    torch.manual_seed(0)
    x = torch.randn(4, 1000)
    [exact] = run_in_float64(CastsToSingle(), {"x": x})
    assert exact.dtype == torch.float64
    wanted = x.double() * x.double().mean(-1, keepdim=True)
    assert torch.equal(exact, wanted)
    with Float64Mode():
        assert torch.arange(3, dtype=torch.float32).dtype == torch.float64


def test_the_original_runs_as_it_is_and_at_half_precision():
    x = torch.randn(4, 8)
    structure, [out] = run_original(torch.nn.Softmax(-1), {"input": x})
    assert structure == "*"
    assert torch.equal(out, x.softmax(-1))
    assert run_in_half(torch.nn.Softmax(-1), {"input": x})[0].dtype == torch.bfloat16


def test_shaking_moves_every_parameter_and_keeps_its_meaning():
    norm = torch.nn.BatchNorm1d(16)
    shake(norm, 1)
    assert bool((norm.weight != 1).all())
    assert bool((norm.weight > 0).all())
    assert bool((norm.bias != 0).all())
    assert bool((norm.running_var > 0).all())
    assert bool((norm.running_mean != 0).any())
    assert norm.num_batches_tracked == 0


def test_conditioning_is_the_largest_relative_movement():
    a, b = torch.ones(4, dtype=torch.float64), torch.tensor([1, 1, 1, 1.1], dtype=torch.float64)
    [moved] = conditioning((a,), (b,))
    assert moved == pytest.approx(0.05)


def test_a_single_number_is_told_from_another_inputs():
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    expected = expect(x.mean())
    tried = dict(impostors(expected, {"x": x}, [y.mean()], None))
    assert set(tried) == {"zeros", "ones", "another input's output"}
    assert not compare(tried["another input's output"][0], expected, 0, POLICY, None).passed
