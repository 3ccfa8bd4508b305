"""Requests to measure: how they travel, and what a judging process without a GPU answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import GOOD, LAYERS

from kernelllm_judge.core.measured import Measured
from kernelllm_judge.core.records import Completion, Target
from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Judge
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.pool.judging_process import TargetJudge
from pytest_kernelllm.pool.messages import (
    MeasuredReply,
    MeasureRequest,
    PrepareRequest,
    message,
    reply_of,
    request_of,
)

KERNEL = Completion("inductor", 0, GOOD, "kernel_module")


@pytest.fixture
def target(tmp_path: Path) -> Target:
    (tmp_path / "layers.py").write_text(LAYERS)
    return scan_file(tmp_path / "layers.py", tmp_path).targets[0]


def measured(root: Path, target: Target, completion: Completion) -> Measured:
    request = MeasureRequest("a", str(root), target, "", completion)
    reply = reply_of(TargetJudge(Judge(find_environment("cpu"))).reply(message(request)))
    assert isinstance(reply, MeasuredReply)
    return reply.measured


def test_each_kind_of_request_comes_back_as_it_was(target: Target) -> None:
    for request in (MeasureRequest("a", "/", target, "", KERNEL), PrepareRequest("a", "/", target, "", (1,))):
        assert request_of(message(request)) == request


def test_without_a_gpu_nothing_is_measured(tmp_path: Path, target: Target) -> None:
    assert measured(tmp_path, target, KERNEL) == Measured(error="there is no GPU to measure on")


def test_what_cannot_be_rendered_says_why(tmp_path: Path, target: Target) -> None:
    error = measured(tmp_path, target, Completion("inductor", 0, "def forward(", "kernel_module")).error
    assert "not Python" in error or "never closed" in error
