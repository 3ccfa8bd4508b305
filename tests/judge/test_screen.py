import pytest

from pytest_kernelllm.judge.screen import screen

GOOD = '''
"""Adds one. The cache and the stream are words."""
import math

import torch
import triton
import triton.language as tl

try:
    import triton.language as tl
except ImportError:
    pass

BLOCK = 1024


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + 1, i < n)


def forward(self, x):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
    return out.view(x.shape)
'''


def test_an_ordinary_kernel_module_passes():
    assert screen(GOOD) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("import os", "imports os"),
        ("from ctypes import CDLL", "imports from ctypes"),
        ("from torch._inductor import config", "imports from torch._inductor"),
        ("eval('1')", "`eval`"),
        ("f = open", "`open`"),
        ("torch.allclose = lambda *a: True", "attribute `allclose`"),
        ("x = ().__class__", "`__class__`"),
        ("torch._C._jit_clear_class_registry()", "torch._C"),
        ("torch.load('x')", "torch.load"),
        ("getattr(torch, 'load')", "`getattr`"),
        ("def f():\n    global BLOCK", "global variable"),
        ("def f(self):\n    self.answer = 1", "self.answer"),
        ("torch.backends.cuda.matmul.allow_tf32 = True", "allow_tf32"),
    ],
)
def test_what_no_kernel_needs_is_refused_by_line(line, reason):
    findings = screen(GOOD + line + "\n")
    assert len(findings) == 1
    assert reason in findings[0].reason
    assert findings[0].line >= GOOD.count("\n") + 1


def test_a_parameter_may_have_a_builtins_name():
    source = GOOD.replace("def forward(self, x):\n", "def forward(self, input):\n    x = input\n")
    assert screen(source) == []


def test_a_builtin_does_not_slip_in_as_a_default():
    assert (
        "`eval`" in screen(GOOD.replace("def forward(self, x)", "def forward(self, x, eval=eval)"))[0].reason
    )


def test_text_that_is_no_python_is_refused():
    assert screen("def forward(:")[0].reason.startswith("it is not Python")


def test_a_module_without_forward_is_refused():
    assert "forward" in screen("import torch")[0].reason
