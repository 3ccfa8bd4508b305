"""Depthwise convolutions and averages as sums: the same numbers, and kernels in place of library calls."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from pytest_kernelllm.generate.inductor.device import gpu_for
from pytest_kernelllm.generate.inductor.forms.form import Form
from pytest_kernelllm.generate.inductor.forms.windows import Averages, Depthwise, is_average
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


def by_sums(module: nn.Module, x: torch.Tensor, form: Form, library: str) -> torch.Tensor:
    """The output of a module whose operations of a form are sums."""
    program = exported(module, x)
    form.writes(program.graph, GPU, DIRECT)
    program.graph.graph.lint()
    program.graph.recompile()
    assert library not in program.graph.code
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
    output = by_sums(module, x, Depthwise(), "convolution")
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


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.AvgPool3d(3, 2, 1), (2, 4, 8, 7, 8)),
        (nn.AvgPool3d(3, 1, divisor_override=5), (2, 4, 8, 8, 8)),
        (nn.AvgPool3d(3, 2, count_include_pad=False), (4, 8, 8, 8)),
        (nn.AvgPool2d(7, 1, 3), (2, 4, 9, 9)),
        (nn.AvgPool1d(31, 1, 15), (2, 4, 40)),
        (nn.AvgPool2d((8, 4), (4, 4)), (2, 4, 16, 16)),
    ],
)
def test_the_sums_are_the_average(module: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    torch.testing.assert_close(by_sums(module, x, Averages(), "avg_pool"), module(x))


@pytest.mark.parametrize(
    "module",
    [
        nn.AvgPool2d(5, 1),  # few enough for Inductor
        nn.AvgPool2d(6, 6),  # without overlap
        nn.AvgPool2d(9, 1),  # too many
        nn.AvgPool2d(7, 2, ceil_mode=True),
        nn.AvgPool2d(7, 1, 3, count_include_pad=False),
    ],
)
def test_other_averages_stay(module: nn.Module) -> None:
    program = exported(module, torch.empty(1, 4, 12, 12))
    assert not any(map(is_average, program.graph.graph.nodes))


def test_averages_of_whole_numbers_stay() -> None:
    program = exported(nn.AvgPool2d(7, 1), torch.empty(1, 4, 12, 12, dtype=torch.int64))
    assert not any(map(is_average, program.graph.graph.nodes))


@pytest.mark.parametrize(("window", "sums"), [(7, False), (5, True)])
def test_beside_a_gradient_of_the_library_no_sums_are_written(window: int, sums: bool) -> None:
    """Inductor writes the gradient of few elements itself."""

    def both(x: torch.Tensor) -> torch.Tensor:
        small = torch.ops.aten.avg_pool2d_backward(
            x, x, [window] * 2, [1, 1], [window // 2] * 2, False, True, None
        )
        return small + torch.nn.functional.avg_pool2d(x, 7, 1, 3)

    with FakeTensorMode():
        module = make_fx(both)(torch.empty(1, 4, 12, 12))
    before = len(module.graph.nodes)
    Averages().writes(module, GPU, DIRECT)
    assert (len(module.graph.nodes) > before) == sums


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
