"""Memory is checked in Triton's interpreter where candidates run on a GPU. Needs none itself."""

import threading
from dataclasses import replace

import pytest
import torch
from projects import GOOD, LAYERS

from kernelllm_judge.beside import Beside, sanitize_all
from kernelllm_judge.core.records import Completion
from kernelllm_judge.findings import Decision, Findings
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.plans import make_plans
from kernelllm_judge.policy import Policy
from kernelllm_judge.render.render import render
from kernelllm_judge.rules.catalog import RULES
from kernelllm_judge.supervisor import ForkServer
from kernelllm_judge.target.live import load_target
from kernelllm_judge.truth.outputs import ReferenceOutputs
from kernelllm_judge.workers import Workers
from pytest_kernelllm.discover.scan import scan_file

MODULES = (
    LAYERS
    + '''

@triton_candidate(inputs=lambda: torch.randn(256, 64), dims={})
class Large(Scale):
    """Inputs too large for the interpreter."""

    def __init__(self, width=64):
        super().__init__(width)


@triton_candidate(inputs=rows, init=(64,), dims={"n": (1, 64)}, backward=True)
class Trained(Scale):
    """Gradients, too."""


@triton_candidate(inputs=lambda n=2: torch.randn(n, 16, 16), dims={"n": (1, 4)})
class Convolution(nn.Module):
    """What a GPU may compute in TF32."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv1d(16, 16, 1)

    def forward(self, x):
        return self.layer(x)
'''
)

CONVOLUTION = """
import torch
import triton
import triton.language as tl


@triton.jit
def convolution_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr):
    index = tl.arange(0, 16)
    here = index[:, None] * 16 + index[None, :]
    weight, x = tl.load(weight_ptr + here), tl.load(x_ptr + tl.program_id(0) * 256 + here)
    out = tl.dot(weight, x, input_precision="tf32") + tl.load(bias_ptr + index)[:, None]
    tl.store(out_ptr + tl.program_id(0) * 256 + here, out)


def forward(self, x):
    out = torch.empty_like(x)
    convolution_kernel[(x.shape[0],)](x, self.layer.weight, self.layer.bias, out)
    return out
"""

TRAINED = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, weight_ptr, out_ptr, ONE: tl.constexpr, WIDTH: tl.constexpr):
    here = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    weight = tl.load(weight_ptr + tl.arange(0, WIDTH))
    tl.store(out_ptr + here, tl.load(x_ptr + here) * weight + ONE)


@triton.jit
def weight_kernel(x_ptr, grad_ptr, out_ptr, WIDTH: tl.constexpr):
    here = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    out = out_ptr + tl.arange(0, WIDTH)
    part = tl.load(x_ptr + here) * tl.load(grad_ptr + here)
    ADD


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        out = torch.empty_like(x)
        scale_kernel[(x.shape[0],)](x, weight, out, ONE=1.0, WIDTH=64)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight)
        scale_kernel[(x.shape[0],)](grad, weight, grad_x, ONE=0.0, WIDTH=64)
        weight_kernel[(x.shape[0],)](x, grad, grad_weight, WIDTH=64)
        return grad_x, grad_weight


def forward(self, x):
    return Scaled.apply(x, self.weight)
"""


@pytest.fixture(scope="module")
def sanitize(tmp_path_factory):
    """Runs the small probes of a kernel for a class of ``MODULES``; returns the details of all checks."""
    path = tmp_path_factory.mktemp("sanitized") / "layers.py"
    path.write_text(MODULES)
    lives = {t.name: load_target(path.parent, t) for t in scan_file(path, path.parent).targets}
    server = ForkServer("interpret", probe_isolation("cpu"))
    policy = Policy()

    def run(name, text, only_main=False):
        live = lives[name]
        source = render(Completion("files", 0, text, "kernel_module"), live).source
        plans = make_plans(source, live.cases, RULES, policy, on_gpu=True, seed=5, nonfinite=True)
        if only_main:
            plans = [replace(plan, further=(), substitutes=(), main=plan.main[:1]) for plan in plans]
        references = ReferenceOutputs(live, "cpu", policy, None, threading.Lock())
        findings = Findings({rule.name: rule.stage for rule in RULES})
        sanitize_all(Workers(server, torch.device("cpu"), 20.0), source, plans, references, findings)
        assert not findings.mutants, [mutant.describe(source) for mutant in findings.mutants]
        return findings.checks

    yield run
    server.close()


def test_an_honest_kernel_passes_at_small_sizes(sanitize):
    checks = sanitize("Scale", GOOD)
    assert [(check.name, check.passed, check.detail) for check in checks] == [("memory accesses", True, "")]


def test_a_read_beyond_the_end_is_named_with_its_line(sanitize):
    text = GOOD.replace("(x.shape[0],)", "(x.shape[0] + 1,)").replace(
        "weight_ptr + columns) + 1)",
        "weight_ptr + columns) + 1, mask=columns + row < 64 * tl.num_programs(0) - 64)",
    )
    with pytest.raises(
        Decision, match=r"line \d+ of `scale_kernel` reads element \d+ of `x_ptr` \(the input `x`\)"
    ):
        sanitize("Scale", text)


@pytest.mark.parametrize(
    ("add", "fault"),
    [
        ("tl.atomic_add(out, part)", ""),
        ("tl.store(out, tl.load(out) + part)", "programs of `weight_kernel` race for element 0 of `out_ptr`"),
    ],
)
def test_backward_passes_are_checked(sanitize, add, fault):
    text = TRAINED.replace("ADD", add)
    if not fault:
        assert all(check.passed for check in sanitize("Trained", text))
    else:
        with pytest.raises(Decision, match=fault):
            sanitize("Trained", text)


def test_a_product_in_tf32_makes_a_difference_where_the_original_may_use_it(sanitize):
    assert all(check.passed for check in sanitize("Convolution", CONVOLUTION, only_main=True))


def test_what_the_interpreter_cannot_run_is_recorded(sanitize):
    libdevice = GOOD.replace(
        "import torch\n", "import torch\nfrom triton.language.extra import libdevice\n"
    ).replace("+ 1)", "+ libdevice.yn(1, x * 0 + 1) * 0)")
    [check] = sanitize("Scale", libdevice)
    assert check.passed
    assert check.detail.startswith(
        "memory accesses were not checked in Triton's interpreter: Triton's interpreter fails at default"
    )


def test_inputs_too_large_for_the_interpreter_are_recorded(sanitize):
    checks = sanitize("Large", GOOD)
    assert {check.detail.split(", at ")[0] for check in checks} == {
        "memory accesses were not checked in Triton's interpreter: inputs of 16,384 elements are too large for it"
    }


def test_a_decision_beside_the_block_takes_precedence():
    def fail(findings):
        raise Decision("rejected", "correctness", "it races", "memory")

    findings = Findings({"memory": "correctness"})
    with pytest.raises(Decision, match="it races"), Beside(fail, findings):
        raise Decision("rejected", "correctness", "it is wrong", "values")
    with pytest.raises(Decision, match="it races"), Beside(fail, findings):
        pass
