"""What an original's outputs may be off by: inputs that are moved a little."""

import pytest
import torch

from kernelllm_judge.truth import calls, truth


@pytest.mark.parametrize("shape", [(), (0,), (7,), (5, 3), (2, 3, 4)])
@pytest.mark.parametrize("at_once", [2, 1 << 24])
def test_inputs_are_moved_some_rows_at_a_time_each_element_a_little(monkeypatch, shape, at_once):
    monkeypatch.setattr(truth, "AT_ONCE", at_once)
    values = torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 0.5
    if len(shape) == 2:
        values[1, 1] = 0.0
    step = 8 * torch.finfo(torch.float32).eps
    change = calls.perturbation(step, 1, torch.device("cpu"))
    near = truth._near(values, change=change, from_zero=change)
    assert (near.shape, near.dtype) == (values.shape, values.dtype)
    assert bool((near != values).all())
    torch.testing.assert_close(near, values, rtol=2 * step, atol=2 * step)
    whole = torch.arange(6).reshape(2, 3)
    assert torch.equal(truth._near(whole, change=change, from_zero=change), whole)


def test_inputs_are_moved_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(truth, "AT_ONCE", 6)
    elements = []

    def change(tensor):
        elements.append(tensor.numel())
        return tensor.double() * 1.5

    values = torch.rand(10, 3) + 1
    near = truth._near(values, change=change, from_zero=change)
    assert elements == [6] * 5
    assert torch.equal(near, 1.5 * values) and near is not values


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_half_precision_the_last_digit_moves_and_zeros_stay_small(dtype):
    values = torch.rand(4, 64, generator=torch.Generator().manual_seed(0)).to(dtype) + 0.5
    values[1] = 0.0
    step, eps = 8 * torch.finfo(torch.float32).eps, torch.finfo(dtype).eps
    visible = calls.perturbation(step, 1, torch.device("cpu"), visible=True)
    fine = calls.perturbation(step, 1, torch.device("cpu"))
    near = truth._near(values, change=visible, from_zero=fine)
    moved = near != values
    assert moved[1].all() and near[1].abs().max() <= 2 * step
    assert moved.double().mean() > 0.9
    torch.testing.assert_close(near, values, rtol=2 * eps, atol=2 * step)
