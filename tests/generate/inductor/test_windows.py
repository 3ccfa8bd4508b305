"""Depthwise convolutions as sums: the same numbers, and kernels in place of library calls."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from pytest_kernelllm.generate.inductor.device import gpu_for
from pytest_kernelllm.generate.inductor.forms.windows import Depthwise
from pytest_kernelllm.generate.inductor.lowering import lower
from pytest_kernelllm.generate.inductor.trace import Exported, export
from pytest_kernelllm.generate.inductor.variants import Variant

pytestmark = pytest.mark.slow


def exported(module: nn.Module, x: torch.Tensor) -> Exported:
    with FakeTensorMode():
        fake = torch.empty(x.shape, dtype=x.dtype)
    return export(module.eval(), ["x"], (fake,), {})


GPU = gpu_for("sm_90")
DIRECT = Variant("direct", forms=(Depthwise.name,))


def by_sums(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The output of a module whose convolutions are sums."""
    program = exported(module, x)
    Depthwise().writes(program.graph, GPU, DIRECT)
    program.graph.graph.lint()
    program.graph.recompile()
    assert "convolution" not in program.graph.code
    weights = [module.get_parameter(name.removeprefix("self.")) for name in program.arguments if name != "x"]
    [output] = program.graph(*weights, x)
    return output


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(4, 4, 3, padding=2, dilation=2, groups=4), (2, 4, 11)),
        (nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4), (2, 4, 9, 8)),
        (nn.Conv2d(4, 4, (1, 5), stride=(1, 2), padding=(0, 2), groups=4, bias=False), (2, 4, 6, 9)),
        (nn.Conv3d(3, 3, 2, groups=3, bias=False), (1, 3, 4, 5, 6)),
        (nn.Conv2d(4, 4, 3, padding="same", groups=4, dtype=torch.bfloat16), (1, 4, 5, 5)),
    ],
)
def test_the_sums_are_the_convolution(module: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=next(module.parameters()).dtype)
    output = by_sums(module, x)
    expected = module(x)
    assert output.dtype == expected.dtype
    torch.testing.assert_close(output, expected, atol=1e-5 if x.dtype == torch.float32 else 1e-2, rtol=1e-2)


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(4, 8, 3),
        nn.Conv2d(4, 8, 3, groups=4),  # two filters a channel
        nn.Conv2d(4, 4, 3, groups=2),
        nn.ConvTranspose2d(4, 4, 3, groups=4),
        nn.Conv2d(4, 4, 9, groups=4),  # too many taps
    ],
)
def test_other_convolutions_stay(module: nn.Module) -> None:
    program = exported(module, torch.empty(1, 4, 12, 12))
    before = program.graph.code
    Depthwise().writes(program.graph, GPU, DIRECT)
    program.graph.recompile()
    assert program.graph.code == before


def test_free_sizes_stay_free() -> None:
    module = nn.Conv2d(4, 4, 3, padding=1, groups=4).eval()
    dynamic = {"input": {0: torch.export.Dim("n", min=1, max=8)}}
    program = export(module, ["input"], (torch.empty(2, 4, 6, 6),), {}, dynamic)
    text = lower(program, GPU, DIRECT).source
    assert "extern_kernels.convolution" not in text


def test_a_kernel_does_what_the_library_did() -> None:
    module = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.ReLU())
    program = exported(module, torch.empty(4, 64, 32, 32))
    usual = lower(program, GPU, Variant("usual")).source
    assert "extern_kernels.convolution" in usual
    direct = lower(program, GPU, DIRECT).source
    assert "extern_kernels.convolution" not in direct
    assert direct.count(".run(") == 1  # bias and activation included
