"""Forward and backward passes that Inductor writes: rendered, judged by the real judge, and run with frozen tensors."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from loading import load
from torch import nn

from kernelllm_judge.candidate import Speed, judge_candidate
from kernelllm_judge.core.kernel_module import read_supports
from kernelllm_judge.core.records import Completion, Verdict
from kernelllm_judge.environment import find_environment
from kernelllm_judge.in_memory import JudgedKernel, adopt
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.judging import Judge
from kernelllm_judge.render.render import render
from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request
from pytest_kernelllm.runtime import explain

PROJECT = Path(__file__).parents[2] / "data" / "training"

pytestmark = pytest.mark.slow

ACCEPTED = (
    "RMSNorm",
    "LayerNorm",
    "GroupNorm",
    "SwiGLU",
    "GEGLU",
    "Rotary",
    "CrossEntropy",
    "Projected",
    "Several",
    "StraightThrough",
    "Turned",
    "Tied",
    "Embedded",
)
REFUSED = {
    "BatchNorm": "it changes an input or buffer in place, or returns views of one tensor",
    "Convolved": "The code leaves `aten.convolution_backward` to PyTorch; a kernel module may leave only matrix "
    "multiplications, convolutions, attention and topk to it",
    "Attention": "attention keeps PyTorch's own backward pass, so no kernels are written for it",
    "Passing": "it returns an input or a view of it",
    "Detached": "no output depends on an input or parameter in a way that autograd can follow",
    "Dropping": "it draws random numbers (aten.rand.default)",
}


@cache
def live(name: str) -> LiveTarget:
    return load(PROJECT / "modules.py", name)


@cache
def completion(name: str) -> Completion:
    request = Request(live(name).target, (0,), lambda: live(name))
    ((_, written),) = InductorGenerator().generate([request])
    return written


@cache
def source(name: str) -> str:
    return render(completion(name), live(name)).source


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    environment = find_environment("cpu", "sm_90")
    with Judge(environment, deadline=120.0, isolation=probe_isolation("cpu", "best")) as opened:
        yield opened


def verdict(judge: Judge, name: str, text: str) -> Verdict:
    return judge_candidate(judge, live(name), text, "", Speed(timing=False))[1]


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_judge_accepts_both_passes(judge: Judge, name: str) -> None:
    found = verdict(judge, name, source(name))
    assert found.accepted, found.reason
    assert all(domain.grad for domain in read_supports(source(name)))
    assert {case.domain.training for case in live(name).cases} == {
        domain.training for domain in read_supports(source(name))
    }


def test_what_a_norm_saves_is_not_rounded_to_half_precision() -> None:
    assert "# Saved for the backward pass: norm_weight, x, mean and rsqrt." in source("LayerNorm")
    for saved in ("mean", "rsqrt"):
        assert f"{saved} = torch.empty((batch, seq, 1), dtype=torch.float32, device=x.device)" in source(
            "LayerNorm"
        )


def test_both_passes_are_written_without_a_warning() -> None:
    target = live("RMSNorm")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ((_, written),) = InductorGenerator().generate([Request(target.target, (0,), lambda: target)])
    assert written.text
    assert [str(each.message) for each in caught if issubclass(each.category, FutureWarning)] == []


@pytest.mark.parametrize(
    "note", ["matrix products and convolutions as kernels", "float32 products on tensor cores"]
)
def test_the_matrix_products_of_both_passes_may_be_kernels(judge: Judge, note: str) -> None:
    request = Request(live("Projected").target, tuple(range(5)), lambda: live("Projected"))
    written = next(each for _, each in InductorGenerator().generate([request]) if each.note == note)
    text = render(written, live("Projected")).source
    assert text.count("tl.dot(") >= 2 and "torch.mm" not in text and "torch.addmm" not in text
    assert ("input_precision=PRECISION" in text) is ("tensor cores" in note)
    found = verdict(judge, "Projected", text)
    assert found.accepted, found.reason


@pytest.mark.parametrize("name", ["RMSNorm", "LayerNorm"])
@pytest.mark.parametrize("rows", [16, 64])
def test_rows_and_columns_may_be_summed_in_one_pass(judge: Judge, name: str, rows: int) -> None:
    request = Request(live(name).target, (1,), lambda: live(name))
    ((_, written),) = InductorGenerator().generate([request])
    assert written.note == "rows and columns summed in one pass"
    written = replace(written, text=written.text.replace('"RSPLIT_SIZE": 16', f'"RSPLIT_SIZE": {rows}'))
    text = render(written, live(name)).source
    assert f"seq * batch + {rows - 1}) // {rows}" in text and "torch.sum" not in text
    assert not re.search(
        r"backward_kernel_[3-9]\(", text
    )  # after the first, one adds up the parts of each gradient
    found = verdict(judge, name, text)
    assert found.accepted, found.reason
    forgotten = text.replace("tl.where(row_mask, grad_out", "tl.where(rows < 16, grad_out")
    assert forgotten != text
    assert not verdict(judge, name, forgotten).correct


@pytest.mark.parametrize(
    ("name", "right", "wrong", "rule"),
    [
        ("RMSNorm", "* -0.5 *", "* 0.5 *", "gradients"),
        ("RMSNorm", "return grad_x, grad_weight.view(48), None", "return grad_x, None, None", "gradients"),
        ("SwiGLU", "return grad_gate, grad_up", "return grad_up, grad_gate", "gradients"),
        (
            "CrossEntropy",
            "grad_out = grad_out.contiguous()",
            "grad_out = torch.ones_like(grad_out)",
            "gradients",
        ),
        ("LayerNorm", ".contiguous()", "", "memory"),
    ],
)
def test_the_judge_rejects_a_broken_backward_pass(
    judge: Judge, name: str, right: str, wrong: str, rule: str
) -> None:
    broken = source(name).replace(right, wrong)
    assert broken != source(name)
    found = verdict(judge, name, broken)
    assert (found.verdict, found.rule) == ("rejected", rule), found.reason


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_what_an_autograd_function_cannot_express_is_refused(name: str, reason: str) -> None:
    assert (completion(name).text, completion(name).note) == ("", reason)


def test_the_function_says_what_it_saves_and_recomputes() -> None:
    assert "# Saved for the backward pass: weight, x and rsqrt. Recomputed there: mul." in source("RMSNorm")
    assert "weight, x, rsqrt = ctx.saved_tensors" in source("RMSNorm")
    assert "return RmsNormFloat32Function.apply(x, self.weight, self.eps)" in source("RMSNorm")


def test_one_function_serves_both_dtypes_where_only_conversions_differ() -> None:
    assert source("SwiGLU").count("torch.autograd.Function") == 1
    assert len(read_supports(source("SwiGLU"))) == 2


def test_outputs_without_gradients_are_marked() -> None:
    assert "ctx.mark_non_differentiable(best)" in source("Several")


@pytest.fixture(scope="module")
def rms_norm(judge: Judge) -> Verdict:
    return verdict(judge, "RMSNorm", source("RMSNorm"))


@pytest.fixture
def adopted(rms_norm: Verdict, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[nn.Module, nn.Module]]:
    """The original of RMSNorm in train mode, and a module that runs its kernel."""
    for name in ("KERNELLLM_INTERPRET", "TRITON_INTERPRET", "KERNELLLM_STRICT"):
        monkeypatch.setenv(name, "1")
    target = live("RMSNorm")
    original, module = (target.build(target.cases[0]) for _ in range(2))
    with adopt(module, JudgedKernel(rms_norm, source("RMSNorm"), type(module))):
        yield original, module


@pytest.mark.parametrize("frozen", ["nothing", "x", "weight", "both"])
def test_tensors_that_need_no_gradient_get_none(adopted: tuple[nn.Module, nn.Module], frozen: str) -> None:
    gradients = []
    for module in adopted:
        x = torch.linspace(-1, 1, 2 * 6 * 48).view(2, 6, 48).requires_grad_(frozen not in ("x", "both"))
        module.weight.requires_grad_(frozen not in ("weight", "both"))
        assert ("runs the kernel" in explain(module, x)) is (module is adopted[1])
        out = module(x)
        if frozen == "both":
            assert not out.requires_grad
        else:
            out.square().sum().backward()
        gradients.append((out.detach(), x.grad, module.weight.grad))
    for expected, found in zip(*gradients, strict=True):
        assert (expected is None) == (found is None)
        if expected is not None:
            torch.testing.assert_close(found, expected)


def test_without_grad_mode_there_is_no_graph(adopted: tuple[nn.Module, nn.Module]) -> None:
    original, module = adopted
    x = torch.linspace(-1, 1, 2 * 6 * 48).view(2, 6, 48)
    with torch.no_grad():
        assert "runs the kernel" in explain(module, x)
        assert not module(x).requires_grad
        torch.testing.assert_close(module(x), original(x))
