"""What one variant of a target cannot do stays with that variant, and PyTorch's copies need no GPU."""

from __future__ import annotations

import pytest
import torch
from fusing import live
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

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


def test_assignments_are_compiled_without_a_gpu() -> None:
    assert lower(exported(Assigned()), GPU, Variant("usual")).source.count(".run(")
