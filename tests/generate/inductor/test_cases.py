"""What one variant of a target cannot do stays with that variant, and PyTorch's copies need no GPU."""

from __future__ import annotations

import pytest
import torch
from fusing import live
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from pytest_kernelllm.generate.inductor.case_tracer import CaseTracer
from pytest_kernelllm.generate.inductor.device import gpu_for
from pytest_kernelllm.generate.inductor.lowering import lower
from pytest_kernelllm.generate.inductor.trace import Exported, TraceError, export
from pytest_kernelllm.generate.inductor.variants import Variant

pytestmark = pytest.mark.slow

GPU = gpu_for("sm_90")


def broken(graph: torch.fx.Graph) -> None:
    raise RuntimeError("this pass holds for some sizes only")


def test_a_variant_that_cannot_be_compiled_takes_no_sizes_from_the_others() -> None:
    target = live("Softmax")
    tracer = CaseTracer(target, target.cases[0], GPU)
    with pytest.raises(TraceError):
        tracer.section(Variant("broken", {"post_grad_custom_pre_pass": broken}))
    assert tracer.section(Variant("usual")).case.domain.dims == target.cases[0].domain.dims != {}


def exported(module: nn.Module) -> Exported:
    with FakeTensorMode():
        fake = torch.empty(2, 4, 5, 6)
    return export(module, ["x"], (fake,), {})


class Assigned(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, 1:3] = x[:, :2].sigmoid()
        return y


class Around(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (1, 2, -1, 3), mode="circular") * 2


@pytest.mark.parametrize("module", [Assigned(), Around()])
def test_assignments_and_circular_padding_are_compiled_without_a_gpu(module: nn.Module) -> None:
    program = exported(module)
    assert lower(program, GPU, Variant("usual")).source.count(".run(")


def test_circular_padding_reads_nothing_that_is_not_written() -> None:
    x = torch.randn(2, 4, 5, 6)
    program = exported(Around())
    assert "slice_scatter" not in program.graph.code and "empty" not in program.graph.code
    torch.testing.assert_close(program.graph(x)[0], Around()(x))
