"""Which buffers of 8-bit integers hold codes of quantised weights, and what a kernel's domain says of them."""

import sys

import pytest
import torch
from loading import load
from torch import nn

from kernelllm_judge.target.calls import Call
from kernelllm_judge.target.codes import codes_of, possible_codes, redraw_codes

FILE = '''
import torch
from torch import nn

from pytest_kernelllm import triton_candidate


def rows():
    return torch.randn(4, 32)


@triton_candidate(inputs=rows)
class Quantised(nn.Module):
    """Weights in int8, a mask, and an index of columns."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.arange(-128, 128, dtype=torch.int8).reshape(8, 32))
        self.register_buffer("mask", torch.arange(32, dtype=torch.uint8) % 2)

    def forward(self, x):
        return (x * self.mask) @ self.weight.to(x.dtype).T


@triton_candidate(inputs=rows)
class Table(nn.Module):
    """Columns in another order."""

    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.arange(32, dtype=torch.uint8).flip(0))

    def forward(self, x):
        return x[:, self.order.long()]
'''


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "quantised_layers", raising=False)
    (tmp_path / "quantised_layers.py").write_text(FILE)
    return tmp_path / "quantised_layers.py"


def test_codes_are_not_pinned_and_masks_are(file) -> None:
    [case] = load(file, "Quantised").cases
    assert "value:weight" not in case.domain.attributes and "weight" in case.domain.attributes
    assert "value:mask" in case.domain.attributes


def test_a_table_of_indices_is_pinned(file) -> None:
    [case] = load(file, "Table").cases
    assert "value:order" in case.domain.attributes


class Scaled(nn.Module):
    """Divides by its codes: with most values, finite outputs are no longer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.arange(1, 33, dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / self.codes


def test_what_is_finite_for_its_own_values_only_is_no_code() -> None:
    torch.manual_seed(0)
    module = Scaled()
    module.codes = module.codes.repeat(64)
    assert possible_codes(module) == {"codes"}
    assert not codes_of(module, possible_codes(module), Call((torch.randn(64 * 32),), {}))


def test_codes_are_redrawn_over_the_whole_range() -> None:
    module = Scaled()
    module.codes = module.codes.repeat(64)
    redraw_codes(module, ["codes"], 0)
    assert module.codes.min() == -128 and module.codes.max() == 127
