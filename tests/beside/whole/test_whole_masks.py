"""Inputs of regions are masks like those of the model's example."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from pytest_kernelllm.beside.whole.capture import capture
from pytest_kernelllm.beside.whole.drawn import band_of, draw


def right_of_diagonal(rows, columns):
    return torch.arange(columns) - torch.arange(rows)[:, None]


@pytest.mark.parametrize(
    ("mask", "band"),
    [
        (right_of_diagonal(5, 5) <= 0, (-4, 0)),
        ((right_of_diagonal(5, 7) <= 1) & (right_of_diagonal(5, 7) >= -2), (-2, 1)),
        ((right_of_diagonal(5, 5) <= 0).expand(2, 1, 5, 5), (-4, 0)),
        (torch.ones(5, 5, dtype=torch.bool), None),
        (torch.zeros(5, 5, dtype=torch.bool), None),
        (right_of_diagonal(5, 5) % 2 == 0, None),
        (torch.stack([right_of_diagonal(5, 5) <= 0, right_of_diagonal(5, 5) <= 1]), None),
        (torch.stack([torch.zeros(5, 5, dtype=torch.bool), right_of_diagonal(5, 5) <= 0]), None),
        (torch.tensor([True, False]), None),
    ],
)
def test_a_mask_is_the_band_that_all_its_matrices_are(mask, band):
    assert band_of(mask) == band


class Local(nn.Module):
    def forward(self, x):
        apart = torch.arange(8)[:, None] - torch.arange(8)
        mask = ((apart >= 0) & (apart < 3))[None, None]
        return scaled_dot_product_attention(x.relu(), x, x, attn_mask=mask).tanh()


def test_a_region_gets_the_mask_that_the_example_has():
    x = torch.randn(1, 2, 8, 16)

    def run(backend):
        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(Local(), backend=backend, dynamic=False)(x)

    (found,) = [each for each in capture(run).regions if each.bands]
    ((number, band),) = found.bands.items()
    drawn = eval(draw(found.text.inputs[number], False, band))
    apart = -right_of_diagonal(8, 8)
    assert torch.equal(drawn, ((apart >= 0) & (apart < 3)).view(drawn.shape))
