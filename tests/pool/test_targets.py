"""Targets that one process loads one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelllm_judge.constructors import Constructors
from kernelllm_judge.environment import find_environment
from kernelllm_judge.isolation.isolation import probe_isolation
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.pool.messages import PrepareReply, PrepareRequest
from pytest_kernelllm.pool.targets import TargetLoader

pytestmark = pytest.mark.usefixtures("restored_precision")

MODULE = """
import torch
from torch import nn

from pytest_kernelllm import triton_candidate

{line}


@triton_candidate(inputs=lambda: torch.randn(4))
class Layer(nn.Module):
    def forward(self, x):
        return x + 1
"""


@pytest.mark.parametrize(
    "line",
    [
        "torch.backends.cudnn.conv.fp32_precision = 'ieee'",
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
        "torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark",
    ],
)
def test_a_file_that_changes_settings_leaves_its_process_to_none_but_itself(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    loader = TargetLoader(find_environment("cpu"), Constructors(probe_isolation("cpu")))

    def request(name: str, line: str) -> PrepareRequest:
        (tmp_path / f"{name}.py").write_text(MODULE.format(line=line))
        [target] = scan_file(tmp_path / f"{name}.py", tmp_path).targets
        return PrepareRequest(name, str(tmp_path), target, "")

    plain, changing, other = request("plain", ""), request("changing", line), request("other", "")
    assert isinstance(loader.prepared(plain), PrepareReply)
    assert loader.fit_for(changing)
    assert isinstance(loader.prepared(changing), PrepareReply)
    assert loader.fit_for(changing) and not loader.fit_for(other)
