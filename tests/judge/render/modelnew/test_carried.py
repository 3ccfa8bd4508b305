"""Weights, layers and forms that a completion spells its own way: rendered, and judged against the original."""

from __future__ import annotations

import ast
import textwrap

import pytest
from rendering import live, rendered

from kernelllm_judge.candidate import Speed, judge_candidate
from kernelllm_judge.core.records import Verdict
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.static_check.static_check import find_violations

HEAD = """
import contextlib
import functools
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < cols
    row = tl.program_id(0) * cols
    x = tl.load(x_ptr + row + at, mask=mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x, axis=0) / cols, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / cols + eps)
    w = tl.load(w_ptr + at, mask=mask)
    b = tl.load(b_ptr + at, mask=mask)
    tl.store(out_ptr + row + at, centred * scale * w + b, mask=mask)


def norm(x, w, b, eps):
    out = torch.empty_like(x)
    norm_kernel[(x.shape[0],)](x, w, b, out, x.shape[1], eps, BLOCK=64)
    return out


"""

CLASS = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}
"""


def answer(text: str) -> str:
    return HEAD + textwrap.dedent(text)


def model(init: str, forward: str) -> str:
    return HEAD + CLASS.format(init=init, forward=forward)


def body_of(target: str, text: str) -> str:
    """``forward`` of the likeliest rendering."""
    tree = ast.parse(rendered(target, text).source)
    return next(ast.unparse(n) for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "forward")


def judged(judge: Judge, target: str, text: str) -> Verdict:
    return judge_candidate(judge, live(target), text, "", Speed(timing=False))[1]


# --------------------------------------------------------------------------- weights

FOUR = "self.p = nn.Parameter(torch.ones(24)); self.q = nn.Parameter(torch.zeros(24)); "
FOUR += "self.r = nn.Parameter(torch.ones(24)); self.s = nn.Parameter(torch.zeros(24))"


def test_the_judge_finds_the_match_that_is_right(judge: Judge) -> None:
    text = model(FOUR, "return norm(norm(x, self.r, self.s, 1e-5), self.p, self.q, 1e-5)")
    candidate = rendered("TwoNorms", text)
    assert candidate.next is not None
    verdict = judge.judge(candidate, Criteria(live("TwoNorms"), timing=False))
    assert (verdict.verdict, verdict.rule) == ("rejected", "values")
    verdict = judged(judge, "TwoNorms", text)
    assert verdict.accepted, verdict.reason


@pytest.mark.parametrize(
    "forward",
    [
        "return norm(norm(x, self.p, self.q, 1e-5), self.p, self.q, 1e-5)",
        "return norm(norm(x, self.p, self.q, 1e-5), self.r, torch.zeros_like(self.s), 1e-5)",
    ],
)
def test_no_match_makes_wrong_maths_right(judge: Judge, forward: str) -> None:
    verdict = judged(judge, "TwoNorms", model(FOUR, forward))
    assert (verdict.verdict, verdict.stage) == ("rejected", "correctness")


@pytest.mark.parametrize(
    ("target", "init", "forward", "expected"),
    [
        ("RMSNorm", "self.gamma = nn.Parameter(torch.ones(48))", "return x * self.gamma", "* self.weight"),
        ("RMSNorm", "self.g = nn.Parameter(torch.ones(1, 48))", "return x * self.g", "self.weight.view((1, 48))"),
        ("TwoNorms", "self.second_weight = nn.Parameter(torch.ones(24))", "return x * self.second_weight",
         "x * self.second.weight"),
        ("TwoNorms", "self.bias = nn.Parameter(torch.zeros(24))", "return x * self.bias", "self.first.bias"),
        ("LinearGelu", "self.w = nn.Parameter(torch.randn(16, 24))", "return x @ self.w",
         "x @ self.fc.weight.transpose(0, 1).contiguous()"),
        ("LinearGelu", "self.linear = nn.Linear(16, 24)", "return self.linear(x)", "return self.fc(x)"),
        ("LinearGelu", "self.a = nn.Linear(16, 24); self.b = nn.Linear(16, 24)", "return self.a(x) * self.b(x)",
         "self.fc(x) * self.fc(x)"),
        ("LinearGelu", "self.linear = nn.Linear(16, 24).to('cuda')", "return self.linear(x)", "return self.fc(x)"),
        ("Stack", "self.layers = nn.ModuleList([nn.ReLU(), nn.Linear(24, 24), nn.Linear(24, 24)])",
         "return self.layers[2](x) * len(self.layers)", "return self.layers[1](x) * 3"),
        ("LinearGelu", "fc = nn.Linear(16, 24); self.w = nn.Parameter(fc.weight.data.clone())",
         "return x @ self.w.t()", "x @ self.fc.weight.t()"),
        ("LinearGelu", "self.fc = nn.Linear(16, 24); self.w = self.fc.weight.detach().half()",
         "return x @ self.w.t()", "x @ self.fc.weight.half().t()"),
        ("LinearGelu", "w = nn.Parameter(torch.empty(24, 16)); self.w = w.t().contiguous()",
         "return x @ self.w", "x @ self.fc.weight.t().contiguous()"),
        ("LinearGelu", "self.register_buffer('zero', torch.zeros(24)); self.fc = nn.Linear(16, 24)",
         "return self.fc(x) + self.zero", "torch.zeros(24, device=x.device)"),
        ("LinearGelu", "self.fc = nn.Linear(16, 24); self.h = self.fc.weight.data.half(); self.w = self.h.t()",
         "return x @ self.w", "x @ self.fc.weight.half().t()"),
        ("LinearGelu", "self.register_buffer('w', torch.ones(24, 16)); self.v = self.w.float()", "return x @ self.v",
         "x @ self.fc.weight.float()"),
        ("LinearGelu", "self.layers = [nn.Linear(16, 24), nn.GELU()]",
         "for f in self.layers: x = f(x)\n        return x", "x = self.fc(x)\n    x = torch.nn.functional.gelu(x, approximate='none')"),
        ("Softmax", "self.one = nn.Parameter(torch.full((1,), 2.0))", "return x * self.one",
         "torch.full((1,), 2.0, device=x.device)"),
    ],
)  # fmt: skip
def test_own_weights_are_carried(target: str, init: str, forward: str, expected: str) -> None:
    assert expected in body_of(target, model(init, forward))


@pytest.mark.parametrize(
    ("target", "init", "forward", "message"),
    [
        ("LinearGelu", "self.w = nn.Parameter(torch.randn(5, 5))", "return x @ self.w", r"no weight of shape \(5, 5\)"),
        ("LinearGelu", "self.l = nn.Linear(7, 8)", "return self.l(x)", "no other Linear like it"),
        ("Softmax", "self.w = nn.Parameter(torch.randn(3))", "return x * self.w", "self.w .*no weight of shape"),
        ("Softmax", "self.out = torch.empty(7, 50)", "return self.out", "self.out .*no weight of shape"),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_named(target: str, init: str, forward: str, message: str) -> None:
    with pytest.raises(RenderError, match=message):
        rendered(target, model(init, forward))


# --------------------------------------------------------------------------- submodules


@pytest.mark.parametrize(
    ("init", "forward", "expected"),
    [
        ("self.net = nn.Sequential()", "return self.net(x)", "return self.net[0](x)"),
        ("self.drop = nn.Dropout(0.3)", "return self.drop(x)", "return x"),
        ("self.act = nn.LeakyReLU(0.3)", "return self.act(x)", "torch.nn.functional.leaky_relu(x, 0.3)"),
        ("self.pool = nn.MaxPool1d(2)", "return self.pool(x)",
         "torch.nn.functional.max_pool1d(x, self.pool.kernel_size, self.pool.stride,"),
        ("self.down = nn.AvgPool1d(2)", "return self.down(x)",
         "torch.nn.functional.avg_pool1d(x, 2, 2, 0, False, True)"),
        ("self.stages = nn.ModuleList()", "for stage in self.stages: x = stage(x)\n        return x",
         "x = self.stages[0](x)\n    x = torch.nn.functional.relu(x)"),
        ("self.a = nn.Sequential(nn.Linear(16, 24), nn.Tanh())", "return self.a(x)",
         "torch.tanh(self.net[0](x))"),
        ("self.stages = nn.ModuleList()", "for i, stage in enumerate(self.stages): x = stage(x) * i\n        return x",
         "x = self.stages[0](x) * 0\n    x = torch.nn.functional.relu(x) * 1"),
        ("self.stages = nn.ModuleList()",
         "for i in range(len(self.stages)): x = self.stages[i](x)\n        return x",
         "x = self.stages[0](x)\n    x = torch.nn.functional.relu(x)"),
        ("self.stages = nn.ModuleList([nn.Linear(24, 24), nn.ReLU()])",
         "for s in self.stages:\n            if isinstance(s, nn.ReLU): x = x * 2\n            else: x = s(x)\n        return x",
         "x = self.stages[0](x)\n    x = x * 2"),
        ("self.stages = nn.Sequential(nn.Dropout(0.1), nn.Linear(24, 24))", "return self.stages[1](x)",
         "return self.stages[0](x)"),
    ],
)  # fmt: skip
def test_layers_become_calls_of_functions(init: str, forward: str, expected: str) -> None:
    text = model(init, forward)
    assert expected in body_of("Tail", text)
    assert find_violations(rendered("Tail", text).source) == []


def test_a_property_is_called() -> None:
    text = answer("""
        class ModelNew(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.weight, self._eps = nn.Parameter(torch.ones(size)), 1e-5

            @property
            def eps(self):
                return self._eps

            def forward(self, x):
                return norm(x, self.weight, self.bias, self.eps)
        """)
    assert "return norm(x, self.weight, self.bias, _eps(self))" in rendered("LayerNorm", text).source


def test_what_is_left_to_torch_is_stated() -> None:
    text = model("self.net = nn.Sequential(); self.pool = nn.MaxPool1d(2)", "return self.pool(self.net(x))")
    assert "Left to torch: max_pool1d, self.net[0]." in rendered("Tail", text).source


def test_torchs_part_of_the_work_is_limited_by_the_judge(judge: Judge) -> None:
    init = "self.first = nn.LayerNorm(24); self.second = nn.LayerNorm(24)"
    half = "self.second(norm(x, self.first.weight, self.first.bias, self.first.eps))"
    verdict = judged(judge, "TwoNorms", model(init, f"return {half}"))
    assert (verdict.verdict, verdict.rule) == ("rejected", "torch's share")


def test_own_modules_in_containers_are_followed() -> None:
    text = answer("""
        class Norm(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

            def forward(self, x):
                return norm(x, self.weight, self.bias, 1e-5)

        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                norms = []
                for _ in range(2):
                    norms.append(Norm(24))
                self.norms = nn.Sequential(*norms)

            def forward(self, x):
                return self.norms(x)
        """)
    source = rendered("TwoNorms", text).source
    assert "return _norms_1(self, _norms_0(self, x))" in source
    assert "norm(x, self.second.weight, self.second.bias, 1e-05)" in source


def test_what_a_constructor_builds_in_its_own_way_is_followed() -> None:
    text = answer("""
        import copy
        from absent import something

        class Norm(nn.Module):
            width = 12

            def __init__(self, size):
                super().__init__()
                self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

            def forward(self, x):
                return norm(x, self.weight, self.bias, 1e-5)

        class Norms(nn.Sequential):
            def __init__(self, kind, count):
                super().__init__(*(copy.deepcopy(kind(kind.width * 2)) for _ in range(count)))

        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.norms = self._stack(**{"kind": Norm, "count": len("ab")})

            def _stack(self, kind, count):
                return Norms(kind, count)

            def forward(self, x):
                return self.norms(x)
        """)
    source = rendered("TwoNorms", text).source
    assert "return _norms_1(self, _norms_0(self, x))" in source
    assert "norm(x, self.second.weight, self.second.bias, 1e-05)" in source


def test_branches_of_own_modules_are_followed(judge: Judge) -> None:
    text = answer("""
        def as_tuple(size):
            return tuple([size])

        class Norm(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.normalized_shape, self.elementwise_affine = as_tuple(size), True
                self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

            def forward(self, x):
                if not self.elementwise_affine:
                    return norm(x, self.one, self.zero, 1e-5)
                if self.bias is not None:
                    x = norm(x.view(-1, *self.normalized_shape), self.weight, self.bias, 1e-5)
                return x

        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = Norm(24), Norm(24)

            def forward(self, x):
                return self.second(self.first(x))
        """)
    assert "self.first.elementwise_affine" not in rendered("TwoNorms", text).source
    verdict = judged(judge, "TwoNorms", text)
    assert verdict.accepted, verdict.reason


def test_an_attribute_that_is_read_by_a_constant_name() -> None:
    init = "self.weight = nn.Parameter(torch.ones(24)); self.bias = nn.Parameter(torch.zeros(24))"
    text = model(init, "return norm(x, getattr(self, 'weight'), getattr(self, 'bias', None), 1e-5)")
    source = rendered("TwoNorms", text).source
    assert "return norm(x, self.first.weight, self.first.bias, 1e-05)" in source
    assert find_violations(source) == []
    for no_name in ("True", "'class'", "'a b'"):
        odd = text.replace("getattr(self, 'bias', None)", f"getattr(x, {no_name})")
        assert f"getattr(x, {no_name})" in rendered("TwoNorms", odd).source


# --------------------------------------------------------------------------- forms of hand-written answers

LAUNCH = "norm_kernel[(x.shape[0],)](x, w, b, out, x.shape[1], eps, BLOCK=64)"
OWN = "self.w = nn.Parameter(torch.ones(40)); self.b = nn.Parameter(torch.zeros(40)); self.eps = 1e-5"
CALLS = CLASS.replace("(self)", "(self, size)").format(
    init=OWN, forward="return {call}(x, self.w, self.b, self.eps)"
)
FORMS = {
    "function": f"""
        def kernel_function(x, weight, bias=None, eps=1e-6):
            w, b, out = weight, bias, torch.empty_like(x)
            {LAUNCH}
            return out
        """,
    "own decorator": """
        def contiguous(function):
            @functools.wraps(function)
            def inner(*args, **kwargs):
                args = [a.contiguous() if isinstance(a, torch.Tensor) else a for a in args]
                with torch.cuda.device(args[0].device.index):
                    return function(*args, **kwargs)
            return inner

        guarded = norm
        @contiguous
        def norm_of(x, w, b, eps):
            return norm(x, w, b, eps)
        """ + textwrap.indent(CALLS.format(call="norm_of"), "        "),
    "context that is read": f"""
        class Norm(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w, b, eps):
                ctx.eps, out = eps, torch.empty_like(x)
                eps = ctx.eps
                {LAUNCH}
                if ctx.needs_input_grad[0]:
                    ctx.save_for_backward(x)
                return out
        """ + textwrap.indent(CALLS.format(call="Norm.apply"), "        "),
    "kernel of the class": f"""
        class ModelNew(nn.Module):
            kernel = norm_kernel

            def __init__(self, size):
                super().__init__()
                {OWN}

            def forward(self, x):
                w, b, eps, out = self.w, self.b, self.eps, torch.empty_like(x)
                {LAUNCH.replace("norm_kernel", "self.kernel")}
                return out
        """,
    "namespace": f"""
        class Norms:
            EPS = 1e-5

            @staticmethod
            def launch(x, w, b):
                eps, out = Norms.EPS, torch.empty_like(x)
                {LAUNCH}
                return out

        class Base(nn.Module):
            def __init__(self, size):
                super().__init__()
                {OWN}

        class Fast(Base):
            def __init__(self, size):
                super(Fast, self).__init__(size)

            def forward(self, x):
                return Norms.launch(x, self.w, self.b)

        ModelNew = Fast
        """,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_public_kernels_are_accepted(judge: Judge, form: str) -> None:
    verdict = judged(judge, "LayerNorm", answer(FORMS[form]))
    assert verdict.accepted, verdict.reason


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def kernel_function(x, table):\n    return x + table", "parameter `table` of kernel_function"),
        (
            "def kernel_function(eps=1e-6):\n    return eps",
            r"takes \(eps\); the target's forward takes \(x\)",
        ),
    ],
)
def test_functions_that_cannot_be_bound(text: str, message: str) -> None:
    with pytest.raises(RenderError, match=message):
        rendered("LayerNorm", HEAD + text)


@pytest.mark.parametrize(
    ("parameters", "call"),
    [
        ("*args", "kernel_function(x, self.weight, self.bias)"),
        ("x, *args, **kwargs", "kernel_function(x, self.weight, self.bias)"),
        ("x, weight, **kwargs", "kernel_function(x=x, weight=self.weight)"),
    ],
)
def test_what_takes_any_arguments_gets_the_inputs_and_weights_that_are_left(
    parameters: str, call: str
) -> None:
    code = f"{HEAD}\ndef kernel_function({parameters}):\n    return torch.empty(1)\n"
    assert call in rendered("LayerNorm", code).source
