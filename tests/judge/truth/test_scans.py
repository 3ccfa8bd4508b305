"""Running sums and products in other orders are the same but for rounding."""

import pytest
import torch

from kernelllm_judge.truth.otherwise import BLOCKS, Scanned


def scanned(function, blocks):
    with Scanned(blocks) as mode:
        return function(), mode.used


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.cumsum(-1),
        lambda x: x.cumsum(0),
        lambda x: (1 + x / 100).cumprod(1),
        lambda x: x.permute(0, 3, 1, 2).cumsum(1).view(2, -1),
        lambda x: x.half().cumsum(1, dtype=torch.float32),
        lambda x: (x > 0).cumsum(1, dtype=torch.float32),
    ],
)
def test_another_order_gives_the_same_but_for_rounding(function, blocks):
    torch.manual_seed(0)
    x = torch.randn(2, 1500, 3, 4)
    found, used = scanned(lambda: function(x), blocks)
    expected = function(x)
    assert used
    assert (found.shape, found.dtype, found.stride()) == (expected.shape, expected.dtype, expected.stride())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_orders_differ_in_their_last_digits():
    x = torch.randn(4, 3000)
    results = [scanned(lambda: x.cumsum(1), blocks)[0] for blocks in BLOCKS]
    assert not any(torch.equal(a, b) for a, b in zip(results, [*results[1:], x.cumsum(1)], strict=True))


@pytest.mark.parametrize(
    "x", [torch.empty(3, 0), torch.tensor(2.0), torch.arange(5), torch.randn(4).double()]
)
def test_what_has_no_other_order_stays(x):
    found, used = scanned(lambda: x.cumsum(-1), 32)
    assert torch.equal(found, x.cumsum(-1))
    assert not used
