"""Hand-style answers: rendered, then run in Triton's interpreter against the originals, in one subprocess."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import replace
from typing import Any

import pytest
from rendering import COMPLETIONS, completion, constructors, live, rendered, run_against_originals

from kernelllm_judge.render.render import RenderError, render
from kernelllm_judge.static_check.static_check import find_violations

ANSWERS = {
    "hand_add": "Add",
    "hand_add_constant": "Add",
    "hand_add_cut_fence": "Add",
    "hand_add_function": "Add",
    "hand_add_two_blocks": "Add",
    "hand_add_untagged": "Add",
    "hand_block": "Block",
    "hand_containers": "Stack",
    "hand_layer_norm": "LayerNorm",
    "hand_linear_functional": "LinearGelu",
    "hand_linear_gelu": "LinearGelu",
    "hand_rms_autotuned": "RMSNorm",
    "hand_rms_methods": "RMSNorm",
    "hand_rms_renamed_eps": "RMSNorm",
    "hand_scale": "Scale",
    "hand_softmax": "Softmax",
    "hand_wrong_sum": "Softmax",
}

HEAD = """
import os
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


"""


def answer(name: str) -> str:
    return (COMPLETIONS / f"{name}.txt").read_bytes().decode()


def model(init: str, forward: str, parameters: str = "x") -> str:
    """A completion with one line each in ``__init__`` and ``forward``."""
    return HEAD + textwrap.dedent(f"""\
        class ModelNew(nn.Module):
            def __init__(self, first=None, second=None, third=None):
                super().__init__()
                {init}

            def forward(self, {parameters}):
                {forward}
        """)


def body_of(target: str, text: str) -> str:
    """``forward`` of a rendered completion, unparsed."""
    tree = ast.parse(rendered(target, text).source)
    return next(ast.unparse(n) for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "forward")


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    sources = {name: (target, rendered(target, answer(name)).source) for name, target in ANSWERS.items()}
    return run_against_originals(tmp_path_factory.mktemp("rendered"), sources)


@pytest.mark.parametrize("name", [name for name in ANSWERS if "wrong" not in name])
def test_rendered_answers_compute_what_the_original_does(errors: dict[str, Any], name: str) -> None:
    assert isinstance(errors[name], float), errors[name]
    assert errors[name] < 1e-5


def test_wrong_maths_stays_wrong(errors: dict[str, Any]) -> None:
    assert errors["hand_wrong_sum"] > 1e-2


def test_only_what_forward_reaches_is_kept() -> None:
    source = rendered("Softmax", answer("hand_softmax")).source
    names = [n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    assert names == ["softmax_kernel", "forward"]
    assert "numpy" not in source and "import os" not in source and "cuda" not in source


def test_unchanged_kernels_keep_their_comments() -> None:
    assert "# one block a program" in rendered("Add", answer("hand_add")).source


def test_constants_are_written_out_in_kernels_and_kept_for_the_host() -> None:
    source = rendered("Add", answer("hand_add_constant")).source
    assert "tl.program_id(0) * 128 + tl.arange(0, 128)" in source
    assert "BLOCK = 128\n" in source and "DEVICE" not in source


def test_libdevice_is_imported() -> None:
    source = rendered("Scale", answer("hand_scale")).source
    assert "from triton.language.extra import libdevice\n" in source and "libdevice.tanh(" in source


def with_kernel(value: str, constant: str = "") -> str:
    """A completion whose kernel stores ``value`` of the loaded ``x``."""
    load = "tl.load(x_ptr + offsets, mask=offsets < n)"
    text = model("pass", "return kernel[(1,)](x, x, 9, 16)").replace(load, re.sub(r"\bx\b", load, value))
    return text.replace("\n\n\n@triton.jit", f"\n{constant}\n\n\n@triton.jit", 1)


@pytest.mark.parametrize("function", ["libdevice.tanh", "tl.tanh", "tl.math.tanh"])
@pytest.mark.parametrize(
    ("constant", "written"),
    [
        ("LOG2_E: tl.constexpr = 1.5", "* 1.5)"),
        ("LOG2_E = 1.5", "* 1.5)"),
        ("LOG2_E = tl.constexpr(1.5)", "* LOG2_E)"),
    ],
)
def test_libdevice_and_constants_of_the_module_go_together(
    constant: str, written: str, function: str
) -> None:
    source = rendered("Scale", with_kernel(f"{function}(x * LOG2_E)", constant)).source
    assert written in source
    assert " libdevice.tanh(" in source


@pytest.mark.parametrize(
    ("constant", "value", "written"),
    [
        ("from triton.language.math import rsqrt", "rsqrt(x)", "tl.math.rsqrt("),
        ("import triton.language.math as tlm", "tlm.exp2(x)", "tl.math.exp2("),
        ("from triton.language.math import tanh", "tanh(x)", " libdevice.tanh("),
    ],
)
def test_functions_of_triton_s_math_may_be_imported(constant: str, value: str, written: str) -> None:
    assert written in rendered("Scale", with_kernel(value, constant)).source


TRIED = """
try:
    {tried}
    FACTOR = 2.5
except ImportError:
    from other import tanh
    FACTOR = 1.5
"""


def test_imports_that_are_tried_are_those_of_the_installed_version() -> None:
    constant = TRIED.format(tried="from triton.language.extra.libdevice import tanh")
    source = rendered("Scale", with_kernel("tanh(x * FACTOR)", constant)).source
    assert "* 2.5)" in source
    assert " libdevice.tanh(" in source


@pytest.mark.parametrize(
    ("constant", "where"),
    [
        (TRIED.format(tried="from other import fast"), "in a `try` statement"),
        ("if torch.version.hip:\n    FACTOR = 2.5", "under a condition"),
        ("for FACTOR in (2.5,):\n    pass", "in a loop"),
    ],
)
def test_names_that_may_hold_other_values_are_refused(constant: str, where: str) -> None:
    text = with_kernel("x", constant).replace("return kernel[(1,)](x, x, 9, 16)", "return x * FACTOR")
    with pytest.raises(RenderError, match=f"`FACTOR` is set {where} at top level"):
        rendered("Scale", text)


def test_a_branch_that_only_printed_stays_valid() -> None:
    indent = "\n" + " " * 16
    forward = f"if x.ndim == 9:{indent}    print(x){indent}return x * 2"
    assert body_of("Scale", model("pass", forward)).endswith(
        "if x.ndim == 9:\n        pass\n    return x * 2"
    )


def test_renamed_scalar_is_taken_from_the_target() -> None:
    source = rendered("RMSNorm", answer("hand_rms_renamed_eps")).source
    assert "self.variance_epsilon" in source and "self.eps" not in source and "BLOCK=64" in source


def test_swapped_parameters_keep_their_positions() -> None:
    assert body_of("Add", answer("hand_add_untagged")).splitlines()[:2] == [
        "def forward(self, x, y):",
        "    y, x = (x, y)",
    ]


def test_target_defaults_and_parameters_win() -> None:
    assert body_of("LinearGelu", answer("hand_linear_gelu")).startswith(
        "def forward(self, x, residual=None):"
    )


@pytest.mark.parametrize(
    ("init", "forward", "expected"),
    [
        ("self.limit = 30.0", "return x * self.limit", "x * self.limit"),
        ("self.limit = 29.0", "return x * self.limit", "x * 29.0"),
        ("self.n = first", "return x * self.n", "x * self.heads"),
        ("self.n = first + 0.5", "return x * self.n", "x * 4.5"),
        ("self.n = second // first", "return x * self.n", "x * 16"),
        ("self.n = 3", "return x * self.n", "x * 3"),
        ("self.n = int(torch.arange(5).sum())", "return x * self.n", "x * 10"),
        ("self.type = torch.float16", "return x.to(self.type)", "x.to(torch.float16)"),
        ("self.causal = third", "return x * self.causal", "x * True"),
        ("self.n = 1 if third else first", "return x * self.n", "x * 1"),
        ("self.low = -float('inf')", "return x * self.low", "x * float('-inf')"),
        ("self.shape = [first, second]", "return x.view(self.shape)", "x.view((4, 64))"),
        ("pass", "return x * self.limit", "x * self.limit"),
        ("pass", "return x if self.training else -x", "x if False else -x"),
    ],
)
def test_what_init_sets_is_mapped(init: str, forward: str, expected: str) -> None:
    assert expected in body_of("Scale", model(init, forward))


STACK = (
    "self.net = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.LayerNorm(24)); self.layers = nn.ModuleList();"
    " self.heads = nn.ModuleDict(); self.scales = nn.ParameterList()"
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("self.net[0].weight", "return self.net[0].weight"),
        ("self.net[-1].eps", "return self.net[2].eps"),
        ("self.layers[1](x)", "return self.layers[1](x)"),
        ("self.heads['down-1'].bias", "return self.heads['down-1'].bias"),
        ("self.scales[0] * x", "return self.scales[0] * x"),
        ("self.net[1:][1].bias", "return self.net[1:][1].bias"),
        ("[layer.weight for layer in self.layers]", "[layer.weight for layer in self.layers]"),
        ("self.layers[len(self.layers) - 1](x)", "self.layers[len(self.layers) - 1](x)"),
    ],
)
def test_parts_of_containers_are_carried(written: str, expected: str) -> None:
    text = model(STACK, f"return {written}")
    assert expected in body_of("Stack", text)
    assert find_violations(rendered("Stack", text).source) == []


@pytest.mark.parametrize(
    ("init", "written", "message"),
    [
        ("self.blocks = nn.MultiheadAttention(8, 2)", "self.blocks(x)", "self.blocks .*no submodule of that"),
        ("pass", "self.blocks[0].weight", "Line 21 reads self.blocks, which ModelNew never sets"),
        (
            "self.net = nn.ModuleList()",
            "self.net[0].weight",
            "is a ModuleList, the target's is a .*Sequential",
        ),
    ],
)
def test_parts_that_the_target_does_not_have(init: str, written: str, message: str) -> None:
    with pytest.raises(RenderError, match=message):
        rendered("Stack", model(init, f"return {written}"))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("torch.empty_like(x.cuda())", "torch.empty_like(x)"),
        ("x.to('cuda:0')", "return x"),
        ("x.to(device='cuda', dtype=torch.float16)", "x.to(dtype=torch.float16)"),
        ("torch.zeros(3, device='cuda')", "torch.zeros(3, device=x.device)"),
        ("torch.zeros(3, device=torch.device('cuda', 0))", "torch.zeros(3, device=x.device)"),
        ("torch.zeros(3, device=torch.cuda.current_device())", "torch.zeros(3, device=x.device)"),
        (
            "torch.zeros(3, device='cuda' if torch.cuda.is_available() else 'cpu')",
            "torch.zeros(3, device=x.device)",
        ),
        ("x if x.device.type == 'cuda' else None", "return x if True else None"),
        ("F.relu(x) + math.pi", "torch.nn.functional.relu(x) + math.pi"),
    ],
)
def test_devices_and_imports_are_spelt_one_way(written: str, expected: str) -> None:
    assert expected in body_of("Scale", model("pass", f"return {written}"))


@pytest.mark.parametrize(
    ("target", "init", "forward", "message"),
    [
        (
            "RMSNorm",
            "self.gamma = nn.Parameter(torch.randn(49))",
            "return x * self.gamma",
            "self.gamma .*only weight",
        ),
        (
            "RMSNorm",
            "self.weight = nn.Parameter(torch.ones(first, 2))",
            "return self.weight",
            r"self.weight .*\(48, 2\)",
        ),
        ("RMSNorm", "pass", "return x * self.scale", "Line 21 reads self.scale"),
        (
            "LinearGelu",
            "self.proj = nn.Linear(second, first)",
            "return self.proj(x)",
            "self.proj .*no submodule",
        ),
        ("LinearGelu", "self.fc = nn.Conv1d(1, 1, 1)", "return self.fc(x)", "self.fc .*Conv1d.*Linear"),
        (
            "LinearGelu",
            "self.act = nn.GELU()",
            "return self.act(x, x)",
            "Line 21: .* other arguments than one",
        ),
        ("Scale", "self.n = 9**99", "return x * self.n", "self.n .*is no plain value"),
        ("Scale", "self.n = first / 0", "return x", "built: line 18: ZeroDivisionError: division by zero"),
        ("Scale", "self.n = absent(first)", "return x", "line 18: NameError: name 'absent' is not defined"),
        ("Scale", "self.n = np.prod(first)", "return x", "line 18: NameError: name 'np' is not defined"),
        ("Scale", "pass", "self.count = 1", "Line 21 changes self.count"),
        ("Scale", "pass", "return helper(self, x)", "Line 21 uses `helper`"),
        ("Scale", "pass", "return max(self, x)", "Line 21 passes on self"),
        ("Scale", "pass", "return os.path.join(x)", "Line 2 imports os"),
    ],
)
def test_what_cannot_be_mapped_is_named(target: str, init: str, forward: str, message: str) -> None:
    with pytest.raises(RenderError, match=message):
        rendered(target, model(init, forward))


@pytest.mark.parametrize(
    ("init", "method", "expected"),
    [
        ("self.limit = 30.0; self.reset()", "def reset(self):\n        self.limit = 2.0", "x * 2.0"),
        ("self.reset(first)", "def reset(self, n, by=2):\n        self.limit = n * by", "x * 8"),
        ("setattr(self, 'limit', 2.0)", "def reset(self):\n        pass", "x * 2.0"),
    ],
)
def test_what_methods_of_init_set_is_mapped(init: str, method: str, expected: str) -> None:
    assert expected in body_of("Scale", model(init, "return x * self.limit") + f"\n    {method}\n")


@pytest.mark.parametrize(
    "patch", ["torch.relu = torch.tanh", "ModelNew.forward = lambda self, x: x", "F.relu = None"]
)
def test_a_text_that_changes_what_it_uses_is_refused(patch: str) -> None:
    with pytest.raises(RenderError, match=f"Line 23: it sets `{patch.split(' ')[0]}`"):
        rendered("Scale", model("pass", "return torch.relu(x)") + f"\n{patch}\n")


def test_switches_of_torchs_backends_are_dropped() -> None:
    text = model("pass", "return torch.relu(x)") + "\ntorch.backends.cuda.matmul.allow_tf32 = True\n"
    assert "backends" not in rendered("Scale", text).source


def test_parameters_that_the_target_does_not_have() -> None:
    with pytest.raises(RenderError, match=r"takes \(x, mask\), the target's forward \(x\)"):
        rendered("Scale", model("pass", "return x", "x, mask"))
    with pytest.raises(RenderError, match=r"takes \(x\), the target's forward \(x, y\)"):
        rendered("Add", model("pass", "return x"))


def test_device_in_a_helper_without_tensors() -> None:
    text = (
        HEAD
        + "def make(n):\n    return torch.zeros(n, device='cuda')\n"
        + model("pass", "return make(3)")[len(HEAD) :]
    )
    with pytest.raises(RenderError, match="Line 16 names a CUDA device"):
        rendered("Scale", text)


def test_no_model_new() -> None:
    with pytest.raises(RenderError, match="no class `ModelNew`"):
        rendered("Scale", HEAD)


def test_supports_are_the_cases_domains() -> None:
    from kernelllm_judge.core.kernel_module import read_supports

    candidate = rendered("Scale", answer("hand_scale"))
    assert read_supports(candidate.source) == tuple(case.domain for case in live("Scale").cases)
    assert not candidate.translated


def test_gradients_keep_the_autograd_function() -> None:
    add = live("Add")
    cases = tuple(replace(case, domain=replace(case.domain, grad=True)) for case in add.cases)
    source = render(completion(answer("hand_add_function")), replace(add, cases=cases), constructors()).source
    assert "class AddFunction(torch.autograd.Function):" in source and "AddFunction.apply(x, y)" in source


def test_a_name_for_what_applies_an_autograd_function() -> None:
    text = answer("hand_add_function").replace("AddFunction.apply(x, y)", "add(x, y)")
    source = rendered(
        "Add", text.replace("class ModelNew", "add = AddFunction.apply\n\n\nclass ModelNew")
    ).source
    assert "add = AddFunction\n" in source and "return add(x, y)" in source
    assert ".apply" not in source


def test_modules_of_its_own_become_functions() -> None:
    source = rendered("Block", answer("hand_block")).source
    names = [n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    assert names == ["rms_norm_kernel", "_norm", "_norm_normalise", "forward"]
    assert "self.norm.weight, out, cols, self.norm.variance_epsilon" in source


def test_an_autograd_function_that_needs_its_context() -> None:
    text = answer("hand_add_function").replace("return out", "return out * ctx.other[0]")
    with pytest.raises(RenderError, match="Line 22 uses `ctx_other`, which the completion does not define"):
        rendered("Add", text)


@pytest.mark.parametrize("name", ANSWERS)
def test_rendered_hand_style_answers_pass_the_static_check(name: str) -> None:
    assert find_violations(rendered(ANSWERS[name], answer(name)).source) == []
