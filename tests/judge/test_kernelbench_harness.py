"""KernelBench's evaluation by this judge, with its parameters and its result."""

import sys
import types

import pydantic
import pytest
import torch

from kernelllm_judge.kernelbench import KernelExecResult, eval_kernel_against_ref

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return torch.relu(x) * self.weight


def get_inputs():
    return [torch.rand(4, 64)]


def get_init_inputs():
    return [64]
"""

ANSWER = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, weight_ptr, out_ptr, WIDTH: tl.constexpr):
    columns = tl.arange(0, WIDTH)
    here = tl.program_id(0) * WIDTH + columns
    x = tl.maximum(tl.load(x_ptr + here), 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_ptr + here, x * tl.load(weight_ptr + columns))


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x):
        out = torch.empty_like(x)
        relu_kernel[(x.shape[0],)](x, self.weight, out, WIDTH=64)
        return out
"""

ONLY_POSITIVE = ANSWER.replace(
    "tl.maximum(tl.load(x_ptr + here), 0.0, propagate_nan=tl.PropagateNan.ALL)", "tl.load(x_ptr + here)"
)
"""Right for the problem's own inputs, which are never negative."""


@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_an_honest_answer_is_correct(precision):
    result = eval_kernel_against_ref(PROBLEM, ANSWER, precision=precision)
    assert isinstance(result, KernelExecResult)
    assert result.compiled and result.correctness, result.metadata
    assert result.model_dump()["metadata"]["kernelllm"]["verdict"] == "accepted"


@pytest.mark.parametrize(
    ("answer", "compiled", "key", "said"),
    [
        (ONLY_POSITIVE, True, "correctness_issue", "is wrong at"),
        (
            ANSWER.replace("out = torch", "return torch.relu(x) * self.weight\n        out = torch"),
            True,
            "correctness_issue",
            "launched no Triton kernel",
        ),
        ("class ModelNew(", False, "compilation_error", ""),
    ],
)
def test_another_one_is_not_and_says_why(answer, compiled, key, said, capfd):
    result = eval_kernel_against_ref(PROBLEM, answer, verbose=True)
    assert (result.compiled, result.correctness) == (compiled, False)
    assert said in result.metadata[key]
    assert "[Eval] " in capfd.readouterr().out


def test_the_result_is_of_kernelbenchs_own_class_where_that_is_imported(monkeypatch):
    class Theirs(pydantic.BaseModel):
        compiled: bool = False
        correctness: bool = False
        metadata: dict = {}
        runtime: float = -1.0
        runtime_stats: dict = {}
        ref_runtime: float = -1.0
        ref_runtime_stats: dict = {}

    module = types.ModuleType("kernelbench.eval")
    module.KernelExecResult = Theirs
    monkeypatch.setitem(sys.modules, "kernelbench.eval", module)
    assert isinstance(eval_kernel_against_ref(PROBLEM, "class ModelNew("), Theirs)


def test_what_cannot_be_judged_is_an_error_in_a_sentence():
    with pytest.raises(ValueError, match="Triton kernels only"):
        eval_kernel_against_ref(PROBLEM, ANSWER, backend="cuda")
    with pytest.raises(RuntimeError, match="no_such_name"):
        eval_kernel_against_ref(PROBLEM.replace("[torch.rand(4, 64)]", "no_such_name"), ANSWER)
