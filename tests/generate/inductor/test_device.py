"""The text is what the named GPU would get, with or without one in the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
from fusing import live
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from pytest_kernelllm.generate.inductor.device import gpu_for
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.inductor.lowering import Lowered, lower
from pytest_kernelllm.generate.inductor.trace import export
from pytest_kernelllm.generate.inductor.variants import Variant
from pytest_kernelllm.generate.protocol import Request


class Sum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).sum()


def lowered(arch: str, module: nn.Module, *shape: int) -> Lowered:
    with FakeTensorMode():
        x = torch.empty(shape)
    return lower(export(module.eval(), ["x"], (x,), {}), gpu_for(arch), Variant("usual"))


def test_an_unknown_architecture_is_described_by_the_one_below_it() -> None:
    assert gpu_for("sm_90a") == gpu_for("sm_90")
    assert gpu_for("sm_87").capability == 86
    assert gpu_for("sm_90").multi_processor_count == 132


def test_each_architecture_has_its_own_identity() -> None:
    assert InductorGenerator("sm_80").identity() != InductorGenerator("sm_90").identity()


@pytest.mark.slow
def test_reductions_are_split_by_the_number_of_multiprocessors() -> None:
    sources = [lowered(arch, Sum(), 6 << 20).source for arch in ("sm_89", "sm_90")]
    programs = [re.findall(r"xnumel = (\d+)", source) for source in sources]
    assert programs[0] != programs[1]


@pytest.mark.slow
def test_rows_are_read_once_up_to_the_length_that_a_variant_names() -> None:
    norm, gpu = nn.LayerNorm(4096), gpu_for("sm_90")
    with FakeTensorMode():
        x = torch.empty(64, 4096)
    program = export(norm.eval(), ["x"], (x,), {})
    for longest, loops in ((0, True), (2048, True), (4096, False)):
        source = lower(program, gpu, Variant("rows", longest_row=longest)).source
        assert ("for r0_offset in" in source) == loops, longest


@pytest.mark.slow
def test_convolutions_run_channels_last() -> None:
    convolution = nn.Sequential(nn.Conv2d(16, 32, 3), nn.ReLU())
    source = lowered("sm_90", convolution, 4, 16, 32, 32).source
    assert "assert_size_stride(buf2, (4, 32, 30, 30), (28800, 1, 960, 32)" in source


@pytest.mark.slow
def test_every_kernel_has_configurations() -> None:
    found = lowered("sm_90", Sum(), 1 << 20)
    assert found.configurations.keys() == set(re.findall(r"async_compile.triton\('(\w+)'", found.source))
    for options in found.configurations.values():
        assert all(option["num_warps"] >= 1 and option["XBLOCK"] >= 1 for option in options)


@pytest.mark.slow
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize(("width", "whole"), [(24000, True), (48000, False)])
def test_rows_that_are_read_twice_may_lie_in_one_block(width: int, whole: bool, free: bool) -> None:
    """Inductor itself knows no such configuration for a free width."""
    with FakeTensorMode():
        x = torch.empty(512, width)
    sizes = {"input": {1: torch.export.Dim("width", max=1 << 17)}} if free else None
    program = export(nn.Softmax(-1).eval(), ["input"], (x,), {}, sizes)
    found = lower(program, gpu_for("sm_90"), Variant("usual"))
    blocks = [option["R0_BLOCK"] for options in found.configurations.values() for option in options]
    assert blocks[0] <= 2048
    assert (max(blocks) > 8192) == whole


@pytest.mark.slow
def test_blocks_move_whole_lines_of_what_is_read_and_of_what_is_written() -> None:
    """A convolution's output lies channels-last, and the norm's result does not."""
    module = nn.Sequential(nn.Conv2d(64, 128, 3), nn.InstanceNorm2d(128))
    found = lowered("sm_90", module, 128, 64, 128, 128)
    [norm] = [options for options in found.configurations.values() if "R0_BLOCK" in options[0]]
    assert min(norm[0]["XBLOCK"], norm[0]["R0_BLOCK"]) >= 32
    assert any(option["XBLOCK"] == 1 for option in norm)


@pytest.mark.slow
@pytest.mark.parametrize(("window", "few"), [(4, False), (8, True)])
def test_elements_for_which_many_values_are_read_are_few_a_thread(window: int, few: bool) -> None:
    found = lowered("sm_90", nn.AvgPool1d(window), 64, 16, 1 << 12)
    [options] = found.configurations.values()
    elements = [option["XBLOCK"] / option["num_warps"] for option in options]
    assert len(options) > 1
    assert (elements[0] == min(elements)) == few


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise AssertionError("CUDA was asked for")

    with monkeypatch.context() as patched:
        patched.setattr(torch.cuda, "_lazy_init", refuse)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("no_gpu")
def test_cuda_is_not_initialised() -> None:
    target = live("Transpose")
    ((_, completion),) = InductorGenerator().generate([Request(target.target, (0,), lambda: target)])
    assert "@triton.jit" in completion.text
