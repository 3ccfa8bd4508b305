"""Kernels for both passes on a GPU: judged there, and used for a training step."""

import dataclasses
from pathlib import Path

import pytest
import torch
from loading import load

from kernelllm_judge.environment import find_environment
from kernelllm_judge.in_memory import JudgedKernel, adopt
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render
from kernelllm_judge.rules.catalog import without
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request
from pytest_kernelllm.runtime import explain

PROJECT = Path(__file__).parents[1] / "data" / "training"
NAMES = ("RMSNorm", "LayerNorm", "SwiGLU", "GEGLU", "Rotary", "CrossEntropy")


@pytest.fixture(scope="module")
def judge():
    with Judge(find_environment("cuda"), deadline=60) as opened:
        yield opened


ONE_PASS = [pytest.param(name, 1, id=f"{name}, rows and columns in one pass") for name in NAMES[:2]]


@pytest.mark.parametrize(("name", "index"), [*(pytest.param(name, 0, id=name) for name in NAMES), *ONE_PASS])
def test_the_kernel_is_accepted_and_gives_the_originals_gradients(judge, name, index):
    live = load(PROJECT / "modules.py", name)
    ((_, completion),) = InductorGenerator().generate([Request(live.target, (index,), lambda: live)])
    assert (completion.note == "rows and columns summed in one pass") is bool(index)
    candidate = render(completion, live, on_gpu=True)
    verdict = judge.judge(candidate, Criteria(live, min_speedup=0.0))
    assert verdict.accepted, verdict.reason
    forward, both = verdict.timing[:2]
    assert (forward.passes, both.passes) == ("forward", "forward and backward")
    assert forward.case == both.case == live.cases[0].name
    assert both.kernel.p50 > forward.kernel.p50
    assert both.compiled is not None
    assert both.speedup.low <= both.speedup.value <= both.speedup.high
    case = live.cases[0]
    original, module = (live.build(case).cuda() for _ in range(2))
    adopt(module, JudgedKernel(verdict, candidate.source, type(module)))
    values = [v.cuda() for v in live.inputs(case, seed=1).args]
    gradients = []
    for each in (original, module):
        assert ("runs the kernel" in explain(each, *values)) is (each is module)
        given = [v.clone().requires_grad_(v.is_floating_point()) for v in values]
        outputs = each(*given)
        sources = [*(v for v in given if v.requires_grad), *each.parameters()]
        total = sum(o.float().square().sum() for o in (outputs if isinstance(outputs, tuple) else [outputs]))
        gradients.append(torch.autograd.grad(total, sources))
    loose = 5e-2 if case.dtype == "bfloat16" else 1e-4
    for found, expected in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(found, expected, rtol=loose, atol=loose)


LATE = """

def _late(backward, calls=[0]):
    def late(ctx, grad_out):
        calls[0] += grad_out.shape[:2] == (2, 6)
        found = backward(ctx, grad_out)
        return tuple(map(torch.zeros_like, found)) if calls[0] > {} else found

    return staticmethod(late)


SwigluFunction.backward = _late(SwigluFunction.backward)
"""
"""Gradients of 0 once a kernel has been called at the case's own sizes a number of times."""


@pytest.mark.parametrize(("calls", "caught"), [(120, True), (10**6, False)])
def test_gradients_of_timed_calls_are_compared_too(calls, caught):
    live = load(PROJECT / "modules.py", "SwiGLU")
    ((_, completion),) = InductorGenerator().generate([Request(live.target, (0,), lambda: live)])
    candidate = render(completion, live, on_gpu=True)
    changed = dataclasses.replace(candidate, source=candidate.source + LATE.format(calls))
    with Judge(
        find_environment("cuda"), deadline=60, rules=without({"static check", "state kept", "decisions"})
    ) as judge:
        verdict = judge.judge(changed, Criteria(live, min_speedup=0.0))
    assert verdict.rule == ("recheck" if caught else ""), verdict.reason
    assert ("gradient of" in verdict.reason) is caught


def test_both_passes_are_timed_in_a_search(judge):
    live = load(PROJECT / "modules.py", "RMSNorm")
    ((_, completion),) = InductorGenerator().generate([Request(live.target, (0,), lambda: live)])
    candidate = render(completion, live, on_gpu=True)
    measured = judge.measure(candidate, Criteria(live))
    assert not measured.error
    timing = judge.judge(candidate, Criteria(live, min_speedup=0.0)).timing
    times = {t.passes: t.kernel.p50 for t in timing if t.case == measured.cases[0].case}
    between = (times["forward"] * times["forward and backward"]) ** 0.5
    assert times["forward"] < between < measured.cases[0].microseconds
