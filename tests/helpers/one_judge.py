"""Kernels for a class of a test file, judged by the one judge that tests share."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from kernelllm_judge.candidate import Speed, judge_candidate
from kernelllm_judge.core.records import Target
from kernelllm_judge.in_memory import JudgedKernel
from kernelllm_judge.judging import Judge
from kernelllm_judge.target.live import live_class
from kernelllm_runtime.marker import Options


def judged_by(
    judge: Judge,
    cls: type[nn.Module],
    text: str,
    inputs: Callable[..., Any],
    dims: Mapping[str, tuple[int, int]],
) -> JudgedKernel:
    """What ``kernelllm_judge.judge`` returns, which would start a judge for each call."""
    target = Target("memory.py", cls.__qualname__, 1, "0" * 64, "call")
    live = live_class(target, cls, Options({"default": inputs}, dims=dims))
    source, verdict = judge_candidate(judge, live, text, "", Speed(timing=False))
    return JudgedKernel(verdict, source, cls)
