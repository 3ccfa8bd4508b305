"""Inputs and weights that are moved in a direction."""

import pytest
import torch

from kernelllm_judge.truth.directed import Direction
from kernelllm_judge.truth.variations import direct


def moved(direction, rows=8, width=64):
    tensor = torch.randn(rows, width, generator=torch.Generator().manual_seed(1))
    return tensor, direction.moved(tensor, torch.Generator().manual_seed(2))


def test_a_factor_and_a_shift_move_everything():
    tensor, scaled = moved(Direction("×", -3.0))
    assert torch.allclose(scaled, tensor * -3)
    tensor, shifted = moved(Direction("+", 100.0))
    assert torch.allclose(shifted, tensor + 100)


def test_rows_get_factors_and_shifts_of_every_size():
    tensor, scaled = moved(Direction("rows ×", 1e6))
    factors = (scaled / tensor).median(1).values
    assert factors.min() < 1e1
    assert factors.max() > 1e4
    tensor, shifted = moved(Direction("rows +", -1e3))
    steps = (shifted - tensor).median(1).values
    assert steps.max() > -10
    assert steps.min() < -300


def test_some_elements_get_a_value_exactly():
    _, changed = moved(Direction("values =", 3.25))
    assert 0 < int((changed == 3.25).sum()) < changed.numel() / 3


def test_rows_get_every_share_of_negative_numbers():
    _, changed = moved(Direction("negative share"))
    shares = (changed < 0).double().mean(1)
    assert shares.min() < 0.2
    assert shares.max() > 0.7


def test_integers_get_a_value_within_their_dtype():
    tensor = torch.zeros(64, dtype=torch.int32)
    found = Direction("values =", 2.0**40).moved(tensor, torch.Generator().manual_seed(0))
    assert int(found.max()) == 2**31 - 1


def test_half_precision_stays_finite():
    tensor = torch.randn(4, 8).half()
    assert bool(Direction("×", 1e30).moved(tensor, torch.Generator()).isfinite().all())


@pytest.mark.parametrize("only", ["", "y"])
def test_one_input_is_moved_or_all(only):
    arguments = {"x": torch.randn(4), "y": torch.randn(4), "ids": torch.arange(4), "n": 3}
    found = direct(arguments, Direction("×", 2.0, only), 0, lambda *_: True)
    assert list(found) == ([only] if only else ["x", "y"])


def test_one_input_becomes_another_and_what_is_refused_stays():
    arguments = {"x": torch.randn(4), "y": torch.randn(4), "z": torch.randn(5)}
    found = direct(arguments, Direction("equal"), 0, lambda *_: True)
    assert list(found) == ["y"]
    assert torch.equal(found["y"](arguments["y"]), arguments["x"])
    assert direct(arguments, Direction("equal"), 0, lambda *_: False) == {}
