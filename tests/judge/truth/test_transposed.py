"""Transposed convolutions as matrix products: they give what PyTorch's give."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelllm_judge.truth import calls, transposed

FUNCTIONS = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("samples", "chunk"), [(3, 1), (3, 1 << 24), (0, 1)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize(
    ("sizes", "kernel", "stride", "padding", "dilation", "more"),
    [
        ((9,), (3,), (1,), (0,), (1,), (0,)),
        ((5,), (4,), (3,), (2,), (2,), (1,)),
        ((1,), (1,), (2,), (0,), (1,), (1,)),
        ((4, 7), (3, 5), (1, 2), (1, 2), (1, 1), (0, 1)),
        ((5, 4), (2, 3), (2, 3), (0, 3), (3, 2), (1, 0)),
        ((3, 4, 5), (3, 2, 1), (2, 1, 2), (1, 0, 0), (1, 2, 1), (1, 0, 1)),
        ((2, 6, 3), (3, 5, 5), (1, 1, 1), (1, 2, 4), (1, 1, 2), (0, 0, 0)),
        ((2, 1), (5, 7), (1, 1), (2, 3), (1, 1), (0, 0)),
        ((3,), (2,), (5,), (3,), (4,), (4,)),
        ((1,), (4,), (3,), (2,), (2,), (0,)),  # some places of the kernel lie outside of the output
    ],
)
def test_it_gives_what_pytorch_gives(
    monkeypatch, sizes, kernel, stride, padding, dilation, more, groups, bias, samples, chunk
):
    monkeypatch.setattr(transposed, "CHUNK", chunk)
    inputs, weight = draw(samples, 6, *sizes), draw(6, 12 // groups, *kernel, seed=1)
    offset = draw(12, seed=2) if bias else None
    expected = FUNCTIONS[len(sizes)](inputs, weight, offset, stride, padding, more, groups, dilation)
    found = transposed.convolve_transposed(inputs, weight, offset, stride, padding, dilation, more, groups)
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


def test_one_number_counts_for_all_sizes():
    inputs, weight = draw(2, 3, 4, 5), draw(3, 2, 3, 3, seed=1)
    expected = F.conv_transpose2d(inputs, weight, None, [2], [1], [1], 1, [1])
    found = transposed.convolve_transposed(inputs, weight, None, [2], [1], [1], [1], 1)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("groups", "padding"), [(1, 0), (3, 0), (1, 4)])
def test_few_elements_are_computed_at_once_and_weights_are_never_copied_for_each_sample(
    monkeypatch, groups, padding
):
    products = []

    def bmm(weights, columns):
        products.append(
            (weights.numel(), columns.numel(), weights.shape[0] * weights.shape[1] * columns.shape[2])
        )
        return product(weights, columns)

    product = torch.bmm
    monkeypatch.setattr(torch, "bmm", bmm)
    monkeypatch.setattr(transposed, "CHUNK", 400)
    inputs, weight = draw(50, 6, 3, 4), draw(6, 12 // groups, 3, 3, seed=1)
    expected = F.conv_transpose2d(inputs, weight, stride=3, padding=padding, groups=groups)
    found = transposed.convolve_transposed(
        inputs, weight, None, (3, 3), (padding, padding), (1, 1), (0, 0), groups
    )
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    assert (
        max(size for _, *sizes in products for size in sizes) <= 12 * 9 * 12
    )  # one sample, where CHUNK is less
    assert {weights for weights, *_ in products} == {6 * 12 // groups}


def test_what_is_not_finite_spreads_as_far():
    inputs, weight = draw(1, 2, 4, 4), draw(2, 3, 3, 3, seed=1)
    inputs[0, 0, 1, 2] = torch.inf
    inputs[0, 1, 3, 3] = torch.nan
    expected = F.conv_transpose2d(inputs, weight, stride=2, padding=1)
    found = transposed.convolve_transposed(inputs, weight, None, (2, 2), (1, 1), (1, 1), (0, 0), 1)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13, equal_nan=True)


@pytest.mark.parametrize(
    ("module", "sizes"),
    [
        (nn.ConvTranspose1d(4, 8, 3, stride=2, output_padding=1, groups=2), (2, 4, 5)),
        (nn.ConvTranspose2d(4, 8, (3, 5), padding=1, bias=False), (4, 6, 7)),
        (nn.ConvTranspose3d(4, 2, 3, stride=2, dilation=2), (2, 4, 3, 4, 5)),
    ],
)
def test_a_run_in_float64_uses_it(monkeypatch, module, sizes):
    used = []

    def convolve(*args):
        used.append(args)
        return transposed.convolve_transposed(*args)

    monkeypatch.setattr(calls, "convolve_transposed", convolve)
    exact = calls.copied(module, calls.to_float64)
    inputs = torch.randn(*sizes)
    [found] = calls.run_in_float64(exact, {"input": inputs})
    assert len(used) == 1
    torch.testing.assert_close(found, exact(inputs.double()), rtol=1e-13, atol=1e-13)


def test_other_convolutions_stay_pytorchs(monkeypatch):
    monkeypatch.setattr(calls, "convolve_transposed", None)
    for module, sizes in itertools.product(
        [nn.Conv2d(4, 8, 3), nn.Conv2d(4, 8, 3, groups=4)], [(2, 4, 6, 6)]
    ):
        exact = calls.copied(module, calls.to_float64)
        inputs = torch.randn(*sizes)
        [found] = calls.run_in_float64(exact, {"input": inputs})
        assert torch.equal(found, exact(inputs.double()))
