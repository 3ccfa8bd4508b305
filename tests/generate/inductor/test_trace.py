"""What is traced, and what is refused before it takes minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from pytest_kernelllm.generate.inductor.literals import MOST
from pytest_kernelllm.generate.inductor.trace import MOST_STEPS, Exported, TraceError, export


class Module(nn.Module):
    """Calls a function with itself and its input."""

    def __init__(self, compute: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.compute = compute
        self.limit = 0.5
        self.means = [1.0, 2.0, 3.0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(self, x)


def exported(module: nn.Module, shape: tuple[int, ...]) -> Exported:
    with FakeTensorMode():
        x = torch.empty(shape)
    return export(module.eval(), ["x"], (x,), {})


def filled(x: torch.Tensor, index: Any, value: float) -> torch.Tensor:
    y = x * 2
    y[index] = value
    return y


@pytest.mark.parametrize(
    "compute",
    [
        lambda self, x: torch.min(x, torch.tensor(self.limit)),
        lambda self, x: x * torch.tensor(2),
        lambda self, x: x * torch.tensor([True, False, True])[:, None],
        lambda self, x: x + torch.tensor(self.means, dtype=torch.bfloat16)[:, None],
        lambda self, x: x + torch.as_tensor(((1, 2), (3, 4)), device=x.device)[1, 0],
        lambda self, x: x + torch.asarray(self.means)[:, None],
        lambda self, x: x + x.new_tensor(self.means)[:, None],
        lambda self, x: torch.where(x > 0, x, torch.tensor(float("-inf"))),
        lambda self, x: x / torch.sqrt(torch.tensor(x.shape[-1], dtype=torch.float32)),
        lambda self, x: filled(x, (slice(None), 1), self.limit),
        lambda self, x: filled(x, x > 0, 3),
        lambda self, x: filled(x, (..., torch.tensor([0, 2])), True),
        lambda self, x: filled(x, (slice(None), [0, 2]), self.limit),
        lambda self, x: x[:, [2, 0]][[1, -1], ..., [3, 4]],
        lambda self, x: x * torch.tensor([np.sqrt(2), 1.5, 2])[:, None],
        lambda self, x: x[0] * torch.tensor([self.limit]).item() + torch.tensor(3).item(),
    ],
)
def test_numbers_become_part_of_the_graph(compute: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
    module, x = Module(compute), torch.randn(2, 3, 8)
    program = exported(module, (2, 3, 8))
    assert program.arguments == ("x",)
    [output] = program.graph(x)
    torch.testing.assert_close(output, module(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    "compute",
    [
        lambda self, x: x * torch.tensor([]).sum(),
        lambda self, x: x + torch.tensor([1.0] * (MOST + 1)).sum(),
        lambda self, x: x[..., [0] * (MOST + 1)],
    ],
)
def test_tensors_of_no_numbers_or_many_are_refused(
    compute: Callable[[Any, torch.Tensor], torch.Tensor],
) -> None:
    with pytest.raises(TraceError, match="neither a parameter nor a buffer"):
        exported(Module(compute), (2, 3, 8))


@pytest.mark.parametrize(
    "change", [lambda t: t.add_(1), lambda t: t.view(1).mul_(3), lambda t: t.__setitem__(0, 7)]
)
def test_a_number_that_changed_in_place_is_not_taken_back(change: Callable[[torch.Tensor], object]) -> None:
    def compute(self: Any, x: torch.Tensor) -> torch.Tensor:
        number = x.new_tensor([2.0])
        change(number)
        return x * number.item()

    with pytest.raises(TraceError, match="gives a number that depends on values"):
        exported(Module(compute), (2, 3, 8))


def test_a_tensor_beside_a_module_without_data_is_named() -> None:
    with FakeTensorMode():
        module = Module(lambda self, x: x + self.table)
        module.table = torch.randn(8)
    with pytest.raises(TraceError, match="neither a parameter nor a buffer"):
        exported(module, (2, 3, 8))


@pytest.mark.parametrize(
    "recurrent",
    [
        nn.LSTM(4, 4, 2, batch_first=True, bidirectional=True),
        nn.GRU(4, 4, 4, batch_first=True),
        nn.RNN(4, 4, 4, batch_first=True),
        nn.RNN(4, 4, 4, nonlinearity="relu", batch_first=True),
    ],
)
def test_long_recurrences_stay_with_the_library(recurrent: nn.Module) -> None:
    module = Module(lambda _, x: recurrent(x)[0].tanh())
    module.recurrent = recurrent
    longest = MOST_STEPS // 4
    assert exported(module, (1, 2, 4)).output == {"tensor": 0}
    with pytest.raises(TraceError, match=f"runs {MOST_STEPS + 4} steps; more than {MOST_STEPS} stay"):
        exported(module, (2, longest + 1, 4))


@pytest.fixture
def ieee(restored_precision: None) -> Iterator[None]:
    yield
    torch.backends.fp32_precision = "none"


@pytest.mark.parametrize("which", [torch.backends.cudnn.conv, torch.backends.cudnn.rnn, torch.backends])
def test_settings_of_precision_that_differ_are_no_obstacle_and_stay(which: Any, ieee: None) -> None:
    cudnn = torch.backends.cudnn
    which.fp32_precision = "ieee"
    before = cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision
    x = torch.randn(1, 3, 8, 8)
    assert export(nn.Conv2d(3, 4, 3), ["input"], (x,), {}).output is not None
    assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == before
