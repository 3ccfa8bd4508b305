"""Operators registered with torch.library become plain functions, and everything about them goes."""

import pytest
import torch

from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.operators import without_operators
from kernelllm_judge.static_check.static_check import find_violations

MODULE = """
import torch
import triton
import triton.language as tl
{imports}

@triton.jit
def twice_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i, i < n), i < n)

{decorator}
def twice(x: torch.Tensor, times: int = 2) -> torch.Tensor:
    out = torch.empty_like(x)
    {kernel}[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out

{below}

def forward(self, x):
    return {call}
"""
TRITON = '@torch.library.triton_op("mine::twice", mutates_args={})'
CUSTOM = '@torch.library.custom_op("mine::twice", mutates_args=(), device_types="cuda")'
WRAPPED = "torch.library.wrap_triton(twice_kernel)"


def module(imports="", decorator=TRITON, kernel="twice_kernel", below="", call="twice(x)"):
    return MODULE.format(imports=imports, decorator=decorator, kernel=kernel, below=below, call=call)


@pytest.mark.parametrize(
    "parts",
    [
        {"kernel": WRAPPED},
        {"decorator": CUSTOM},
        {
            "imports": "from torch.library import triton_op, wrap_triton as w",
            "decorator": "@triton_op('mine::twice', mutates_args=())",
            "kernel": "w(twice_kernel)",
        },
        {
            "decorator": CUSTOM,
            "below": "@twice.register_fake\ndef _(x, times=2):\n    return torch.empty_like(x)",
        },
        {
            "decorator": CUSTOM,
            "below": "@torch.library.register_fake('mine::twice')\ndef _(x, times=2):\n    return x.new_empty(3)",
        },
        {"decorator": CUSTOM, "below": "twice.register_fake(lambda x, times=2: torch.empty_like(x))"},
        {"call": "torch.ops.mine.twice(x)"},
        {"call": "torch.ops.mine.twice.default(x, 2)"},
        {
            "decorator": "",
            "below": "operator = torch.library.custom_op('mine::twice', twice, mutates_args=())",
            "call": "operator(x)",
        },
    ],
)
def test_an_operator_becomes_its_function(parts):
    found = without_operators(module(**parts))
    assert not any(word in found for word in ("library", "_op(", "wrap_triton", "register", "torch.ops")), (
        found
    )
    assert find_violations(module(**parts)) and not find_violations(found)


GRADIENTS = """
def keep(ctx, inputs, output):
    ctx.times = inputs[1]

def back(ctx, gradient):
    return twice(gradient), None

{register}
"""


@pytest.mark.parametrize(
    "register",
    [
        "twice.register_autograd(back, setup_context=keep)",
        "torch.library.register_autograd('mine::twice', back, setup_context=keep)",
        "torch.library.register_autograd(twice, back, setup_context=keep)",
    ],
)
def test_registered_gradients_become_an_autograd_function(register):
    found = without_operators(module(decorator=CUSTOM, below=GRADIENTS.format(register=register)))
    assert not find_violations(found)
    # Run without Triton: what matters is which function calls which.
    launch = "twice_kernel[triton.cdiv(x.numel(), 64),](x, out, x.numel(), BLOCK=64)"
    assert launch in found
    names = {"torch": torch}
    exec(found[found.index("def _twice") :].replace(launch, "out.copy_(2 * x)"), names)
    x = torch.randn(5, requires_grad=True)
    y = names["forward"](None, x)
    y.sum().backward()
    assert torch.equal(y, 2 * x) and torch.equal(x.grad, torch.full((5,), 2.0))


def test_gradients_that_need_nothing_of_the_call():
    below = "def back(ctx, gradient):\n    return 2 * gradient, None\ntwice.register_autograd(back)"
    found = without_operators(module(decorator=CUSTOM, below=below))
    assert "def setup_context(ctx, inputs, output):\n        pass" in found and not find_violations(found)


@pytest.mark.parametrize(
    ("below", "words"),
    [
        (
            "@twice.register_kernel('cuda')\ndef other(x, times=2):\n    return x",
            "Line 18: `twice.register_kernel('cuda')`",
        ),
        ("twice.register_autograd(lambda ctx, g: (g, None))", "the gradients of `twice`"),
    ],
)
def test_other_registrations_are_refused(below, words):
    with pytest.raises(RenderError, match=r"^Line 18: ") as refused:
        without_operators(module(decorator=CUSTOM, below=below))
    assert words in str(refused.value)


def test_an_operator_gets_no_name_that_stands_for_something_else():
    back = "def back(ctx, gradient):\n    return 2 * gradient, None\ntwice.register_autograd(back)"
    for below, words in (
        ("def _twice(x, times):\n    return x\n" + back, "need names that the code uses: "),
        (back + "\ntwice.register_autograd(back)", "need names that the code uses: "),
        (
            "def other(twice):\n    return torch.ops.mine.twice(twice)",
            "shares its name `twice`",
        ),
    ):
        with pytest.raises(RenderError, match=words):
            without_operators(module(decorator=CUSTOM, below=below))


def test_code_without_operators_stays_byte_for_byte():
    code = "x = 1  # library\n\n\n\ny = 2\n"
    assert without_operators(code) == code
