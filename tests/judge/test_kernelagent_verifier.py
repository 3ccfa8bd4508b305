"""KernelAgent's verification by this judge, with its parameters and its result."""

import json
import logging

import pytest

from kernelllm_judge.kernelagent import VERDICT, KernelLLMVerifier

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=eps)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(4, 48)]


def get_init_inputs():
    return [48]
"""

KERNEL = """
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0) * width
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row + columns, mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x) / width, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred) / width + eps)
    weight, bias = tl.load(weight_ptr + columns, mask), tl.load(bias_ptr + columns, mask)
    tl.store(out_ptr + row + columns, centred * scale * weight + bias, mask)


def kernel_function(x, weight, bias, eps=1e-5):
    out = torch.empty_like(x)
    width = x.shape[-1]
    norm_kernel[(x.shape[0],)](x, weight, bias, out, width, eps, BLOCK=triton.next_power_of_2(width))
    return out


def self_test():
    sys.exit(0)
"""


@pytest.fixture
def problem(tmp_path):
    file = tmp_path / "problem.py"
    file.write_text(PROBLEM)
    return file


IN_FLOAT32 = KERNEL.replace("mask, other=0.0)", "mask, other=0.0).to(tl.float32)")
ARGUMENTS = KERNEL.replace(
    "(x, weight, bias, eps=1e-5):",
    "(x, *args, **kwargs):\n    weight, bias = args\n    eps = kwargs.get('eps', 1e-5)",
)


@pytest.mark.parametrize(("text", "dtypes"), [(KERNEL, ()), (ARGUMENTS, ()), (IN_FLOAT32, ("bfloat16",))])
def test_a_right_kernel_passes_with_the_modules_own_weights_and_settings(
    problem, tmp_path, caplog, text, dtypes
):
    caplog.set_level(logging.INFO)
    verifier = KernelLLMVerifier(log_dir=tmp_path, logger=logging.getLogger("agent"), dtypes=dtypes)
    assert verifier.verify(text, problem, ["raise SystemExit(1)"])
    assert json.loads((tmp_path / VERDICT).read_text())["verdict"] == "accepted"
    assert caplog.messages == ["accepted"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (KERNEL.replace("out = torch.empty_like(x)", "out = x"), "changes its input `x` in place"),
        (KERNEL.replace("* weight + bias", "+ bias"), "wrong at"),
        (KERNEL.replace("kernel_function(", "other_function("), "no class `ModelNew`"),
    ],
)
def test_a_wrong_one_does_not_and_the_log_says_why(problem, caplog, text, said):
    assert not KernelLLMVerifier(dtypes=()).verify(text, problem)
    assert said in caplog.text


def test_what_cannot_be_judged_does_not_pass(problem, caplog):
    problem.write_text(PROBLEM.replace("get_inputs", "no_inputs"))
    assert not KernelLLMVerifier(dtypes=()).verify(KERNEL, problem)
    assert "KernelBench's form" in caplog.text


def test_the_weight_and_bias_of_a_layer_come_together(problem, caplog):
    added = "self.bias = nn.Parameter(torch.rand(1))"
    text = PROBLEM.replace("eps=eps)\n", f"eps=eps)\n        {added}\n")
    problem.write_text(text.replace("self.norm(x)", "self.norm(x) + self.bias"))
    kernel = KERNEL.replace("bias, eps=1e-5):", "bias, eps=1e-5, add_bias=None):")
    kernel = kernel.replace("bias, out, width", "bias, add_bias, out, width").replace(
        "bias_ptr, out_ptr,", "bias_ptr, add_ptr, out_ptr,"
    )
    kernel = kernel.replace("* weight + bias,", "* weight + bias + tl.load(add_ptr),")
    assert KernelLLMVerifier(dtypes=()).verify(kernel, problem), caplog.text
