"""Targets are traced without data: large inputs are never drawn, large weights never filled."""

from __future__ import annotations

import pytest
import torch
from loading import pinned
from torch._subclasses.fake_tensor import FakeTensor

from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.inductor.fake import fake_call, traceable_module
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request

SOURCE = """
import torch
from torch import nn
from pytest_kernelllm import triton_candidate


@triton_candidate(inputs=lambda: torch.rand(1 << 17, 1 << 18))  # 128 GiB
class Huge(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1


@triton_candidate(inputs=lambda n=4: {"scale": 2.0, "x": torch.rand(n, 2100)}, dims={"n": (1, 8)},
                  dtypes=("bfloat16",))
class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2100, 2100)

    def forward(self, x, offset=0.0, scale=1.0):
        return torch.relu(self.fc(x)) * scale + offset


@triton_candidate(inputs=lambda: torch.rand(4, 2100))
class Measured(Wide):
    def __init__(self):
        super().__init__()
        self.norm = self.fc.weight.norm().item()

    def forward(self, x):
        return torch.relu(self.fc(x)) / self.norm


@triton_candidate(inputs=lambda: torch.rand(4, 8))
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.fc(x))
"""


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LiveTarget]:
    file = tmp_path_factory.mktemp("fake") / "modules.py"
    file.write_text(SOURCE, encoding="utf-8")
    return {target.name: pinned(file.parent, target) for target in scan_file(file, file.parent).targets}


@pytest.mark.slow
def test_inputs_larger_than_memory_are_traced(targets: dict[str, LiveTarget]) -> None:
    live = targets["Huge"]
    ((_, completion),) = InductorGenerator().generate([Request(live.target, (0,), lambda: live)])
    assert "@triton.jit" in completion.text, completion.note


def test_arguments_follow_the_case_without_a_call_of_the_users_code(targets: dict[str, LiveTarget]) -> None:
    live = targets["Wide"]
    call = fake_call(live, live.cases[0], {"n": 6})
    (x,) = call.args
    assert isinstance(x, FakeTensor)
    assert (x.dtype, x.shape, x.device.type) == (torch.bfloat16, (6, 2100), "cpu")
    assert call.kwargs == {"scale": 2.0}


@pytest.mark.parametrize(("name", "fake"), [("Wide", True), ("Measured", False), ("Small", False)])
def test_large_weights_have_no_data_if_the_constructor_reads_none(
    targets: dict[str, LiveTarget], name: str, fake: bool
) -> None:
    live = targets[name]
    module = traceable_module(live, live.cases[0])
    assert isinstance(module.fc.weight.data, FakeTensor) is fake
    assert module.fc.weight.dtype == getattr(torch, live.cases[0].dtype or "float32")
