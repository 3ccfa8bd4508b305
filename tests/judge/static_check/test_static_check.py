import contextlib
import functools
import importlib.util
import types

import pytest
import torch
import triton
from corpus.entries import load

from kernelllm_judge.static_check.allowed import INSIDE_TRITON, MEMBERS, NAMESPACES, OTHER_MEMBERS
from kernelllm_judge.static_check.static_check import LONGEST_SOURCE, find_violations

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
    assert find_violations(GOOD) == []


@pytest.mark.parametrize("part", ["self.proj.fn", "self.net.module", "self.layers[0].fn.cache", "self.fn"])
def test_parts_of_a_target_may_be_called_like_something_in_triton(part):
    assert find_violations(GOOD.replace("out.view(x.shape)", f"out.view(x.shape) + {part}.weight")) == []


@pytest.mark.parametrize("holder", ["kernel", "x", "helper(self)", "vars_of[0]"])
def test_anywhere_else_such_names_are_refused(holder):
    violations = find_violations(GOOD.replace("out.view(x.shape)", f"{holder}.fn.weight"))
    assert any("`fn`" in f"{each}" for each in violations)


REFUSED = {
    "def f():\n    return __name__": "reads the module's name",
    "if __name__ == 'kernel_module':\n    pass": "reads the module's name",
    "def f(c):\n    c.kwargs['B'] = 1": "kwargs",
    "def f(c):\n    return c.kwargs": "touches `kwargs`",
    "def f():\n    return hasattr(kernel, 'a') or kernel.best_config": "touches `best_config`",
    "def f(x):\n    return x.storage_offset() > 0": "touches `storage_offset`",
    "@triton.jit\ndef k(x_ptr, N):\n    tl.load((N + 1).to(x_ptr.dtype))": "the type of the pointer",
    "@triton.jit\ndef k(x_ptr, N):\n    tl.load((N + 1).to(x_ptr.type))": "takes a `.type`",
    "from itertools import count": "imports itertools.count",
    "from dataclasses import field": "imports dataclasses.field",
    # what pytest would run, if it imported the file as a conftest
    "def pytest_runtest_makereport(item, call): return None": "defines `pytest_runtest_makereport`",
    "pytest_configure = lambda config: None": "defines `pytest_configure`",
    "class pytest_hooks: pass": "defines `pytest_hooks`",
    "from math import sqrt as pytest_sqrt": "defines `pytest_sqrt`",
    "pytest_plugins = ['x']": "defines `pytest_plugins`",
    "collect_ignore_glob = ['*']": "defines `collect_ignore_glob`",
    # the target's own state
    "def f(self): self.load_state_dict({})": "touches `load_state_dict`",
    "def f(self): self.norm.load_state_dict({})": "touches `load_state_dict`",
    "def f(self): self.register_buffer('x', 1)": "touches `register_buffer`",
    "def f(self): self.train()": "touches `train`",
    "def f(self): return self._get_name() == 'StandIn'": "touches `_get_name`",
    "def f(self): return 'bias' in self.norm._parameters or len(self._parameters)": "touches `_parameters`",
    "def f(self): return [*self.state_dict()], [*self.named_buffers()]": "touches `state_dict`",
    # addresses and instructions of its own
    "def k(x): tl.inline_asm_elementwise('', '=r,r', [x], tl.int32, True, 1)": "inline_asm_elementwise",
    "def k(x): tl.load((140737488355328).to(tl.pointer_type(tl.float32)))": "triton.language.pointer_type",
    "def k(x): tl.load(x); tl.load(tl.cast(140737488355328, x.dtype))": "type of the pointer `x`",
    "def k(x): tl.load(8 + x); tl.load(tl.full((), 1, tl.int64).to(x.dtype, bitcast=True))": "type of the pointer `x`",
    "def k(x):\n    p = x + 1\n    tl.store(p, 0)\n    t = x.dtype": "type of the pointer `x`",
    "def g(p): return p.dtype\ndef k(x):\n    tl.store(x, 0)\n    t = g(x)": "type of the pointer `p`",
    "def g(p): return tl.load(p)\ndef k(x):\n    t = x.dtype\n    g(p=x)": "type of the pointer `x`",
    "def k(x: '*fp32'): tl.load(x)": "annotates `x`",
    "T = '*' + 'fp32'\ndef k(x: T): tl.load(x)": "annotates `x`",
    "def k(x: '*' + 'fp32'): tl.load(x)": "annotates `x`",
    "def k(x): tl.tensor(7, tl.int64)": "makes a tl.tensor of a handle",
    "class P:\n    def data_ptr(self): return 140737488355328": "defines `data_ptr`",
    "class P:\n    data_ptr = int": "defines `data_ptr`",
    "class P:\n    def __init__(self): self.data_ptr = int": "defines `data_ptr`",
    "from typing import NamedTuple\nclass P(NamedTuple):\n    data_ptr: int": "defines `data_ptr`",
    "from collections import namedtuple\nP = namedtuple('P', 'dtype data_ptr')": "fields of a tuple",
    "from collections import namedtuple\nP = namedtuple('P', ['data' + '_ptr'])": "fields of a tuple",
    # what a reader of the file would not see
    "x = 1  # \u202e": "U+202E RIGHT-TO-LEFT OVERRIDE",
    "x = '\u200b'": "U+200B ZERO WIDTH SPACE",
    "x = 1  #\rimport math": "U+000D",
    "\u0445 = 1": "U+0445 CYRILLIC SMALL LETTER HA",
    "\uff45val = 1": "U+FF45 FULLWIDTH LATIN SMALL LETTER E",
    "\u0261 = 1": "U+0261 LATIN SMALL LETTER SCRIPT G",
    "def f(self): return self.we\u0456ght": "U+0456 CYRILLIC SMALL LETTER BYELORUSSIAN-UKRAINIAN I",
    # imports
    "import os": "imports os",
    "import torch, ctypes": "imports ctypes",
    "import triton.language.core as core": "imports triton.language.core",
    "from ctypes import CDLL": "imports from ctypes",
    "from . import sibling": "imports from .",
    "from torch import *": "imports from torch *",
    "from torch import load as l": "imports torch.load",
    "from torch import os": "imports torch.os",
    "from torch.nn.functional import torch as t": "imports torch.nn.functional.torch",
    "from torch._inductor import config": "imports from torch._inductor",
    "from torch.utils.cpp_extension import load_inline": "imports from torch.utils.cpp_extension",
    "from math import __loader__ as loader": "imports math.__loader__",
    "from functools import singledispatch": "imports functools.singledispatch",
    "from contextlib import suppress": "imports contextlib.suppress",
    # chains to another module, and modules handed around
    "torch.os.system('true')": "uses torch.os",
    "torch.sys.modules": "uses torch.sys",
    "torch.nn.functional.torch.save": "uses torch.nn.functional.torch",
    "torch.nn.modules": "uses torch.nn.modules",
    "tl.core.builtins": "uses triton.language.core",
    "tl.math.core": "uses triton.language.math.core",
    "triton.runtime.jit": "uses triton.runtime.jit",
    "triton.runtime.driver.active.utils.load_binary": "uses triton.runtime.driver.active.utils.load_binary",
    "math.__loader__": "uses math.__loader__",
    "torch.empty.__self__": "`__self__`",
    "torch.float32.torch": "touches `torch` of torch.float32",
    "t = torch\nt.save": "uses torch.save",
    "t: object = torch\nu = t\nu.load": "uses torch.load",
    "def f():\n    g = torch.cuda\n    def h():\n        return g.Stream()": "uses torch.cuda.Stream",
    "class A:\n    torch = 1\n    x = torch.save": "uses torch.save",
    "[torch][0].save": "passes the module `torch` around",
    "a, b = torch, 1": "passes the module `torch` around",
    "(t := torch).save": "passes the module `torch` around",
    "t = torch if BLOCK else tl": "passes the module `torch` around",
    "def f(t=torch):\n    return t.save": "passes the module `torch` around",
    "f = lambda: torch": "passes the module `torch` around",
    "for t in (torch,):\n    t.save": "passes the module `torch` around",
    "x = [t.save for t in [torch]]": "passes the module `torch` around",
    "def f() -> torch.cuda:\n    pass": "passes the module `torch.cuda` around",
    "match torch:\n    case object(save=s):\n        s": "passes the module `torch` around",
    "with torch.nn.functional as f:\n    f": "passes the module `torch.nn.functional` around",
    "print(f'{torch}')": "passes the module `torch` around",
    # parts of torch no kernel needs
    "torch.load('x')": "torch.load",
    "torch.from_file('x')": "torch.from_file",
    "torch.frombuffer(b'1')": "torch.frombuffer",
    "torch._C._jit_clear_class_registry()": "torch._C",
    "torch.compile(forward)": "torch.compile",
    "torch.set_default_dtype(torch.float16)": "torch.set_default_dtype",
    "torch.set_float32_matmul_precision('high')": "torch.set_float32_matmul_precision",
    "torch.use_deterministic_algorithms(True)": "torch.use_deterministic_algorithms",
    "torch.set_num_threads(1)": "torch.set_num_threads",
    "torch.manual_seed(0)": "torch.manual_seed",
    "torch.cuda.Stream()": "torch.cuda.Stream",
    "torch.cuda.stream(None)": "torch.cuda.stream",
    "torch.cuda.CUDAGraph()": "torch.cuda.CUDAGraph",
    "torch.cuda.set_device(1)": "torch.cuda.set_device",
    "torch.cuda.Event()": "torch.cuda.Event",
    "torch.Tensor._make_subclass": "touches `_make_subclass` of torch.Tensor",
    "torch.autograd.Function.apply.gi_frame": "`gi_frame`",
    "torch.backends.cuda.matmul.allow_tf32 = True": "allow_tf32",
    "tl.extern_elementwise": "triton.language.extern_elementwise",
    "triton.testing.do_bench": "triton.testing",
    "@torch.jit.script\ndef f(x):\n    return x": "torch.jit",
    "def f(x: torch.os.system('true')):\n    pass": "torch.os",
    # builtins and names with two underscores
    "eval('1')": "`eval`",
    "f = open": "`open`",
    "getattr(torch, 'load')": "`getattr`",
    "getattr(torch.cuda.get_device_properties(0), '__class__', 1)": "`__class__`",
    "getattr(torch.cuda.get_device_properties(0), 'warp_size', torch.load)": "torch.load",
    "def get(name):\n    return getattr(torch.cuda.get_device_properties(0), name, 32)": "`getattr`",
    "getattr = print\ngetattr(torch.cuda.get_device_properties(0), 'warp_size', 32)": "`getattr`",
    "type('A', (), {})": "`type`",
    "globals()": "`globals`",
    "if BLOCK == 1:\n    eval = 1\neval('1')": "`eval`",
    "[(eval('1'), (eval := 1)) for _ in (1,)]": "`eval`",
    "class A:\n    exec('1')": "`exec`",
    "def f(x, eval=eval):\n    pass": "`eval`",
    "__builtins__['eval']": "`__builtins__`",
    "__import__('os')": "`__import__`",
    "__loader__": "`__loader__`",
    "x = ().__class__": "`__class__`",
    "kernel.__globals__": "`__globals__`",
    "def __getattr__(name):\n    return 1": "defines `__getattr__`",
    "class A:\n    def __del__(self):\n        pass": "defines `__del__`",
    "class A:\n    __torch_function__ = None": "`__torch_function__`",
    "class A:\n    __cuda_array_interface__ = {}": "`__cuda_array_interface__`",
    "class A:\n    __match_args__ = ('gi_frame',)": "`__match_args__`",
    # looking inside
    "'{0.__class__}'.format(1)": "`.format`",
    "'{0[x]}'.format({})": "`.format`",
    "'{:{0.real}}'.format(1)": "`.format`",
    "list(map(str.format, ['{0.__class__}'], [1]))": "`.format`",
    "t = '{0.__class__}'\nt.format(1)": "`.format`",
    "'{x.y}'.format_map({})": "`.format_map`",
    "g = (1 for _ in ())\ng.gi_frame.f_back": "f_back",
    "match (1 for _ in ()):\n    case object(gi_frame=f):\n        f": "`gi_frame`",
    "def f(self):\n    return self.gi_frame": "`gi_frame`",
    "try:\n    tl.zeros\nexcept AttributeError as e:\n    e.obj": "`obj`",
    "kernel.pre_run_hooks": "`pre_run_hooks`",
    "kernel.add_pre_run_hook(print)": "`add_pre_run_hook`",
    "kernel._unsafe_update_src('')": "`_unsafe_update_src`",
    # tensors
    "def f(x):\n    x.untyped_storage()": "`untyped_storage`",
    "def f(x):\n    x.set_(x)": "`set_`",
    "def f(x):\n    x.register_hook(print)": "`register_hook`",
    "def f(x):\n    x.share_memory_()": "`share_memory_`",
    "def f(x):\n    x.numpy().tofile('x')": "`tofile`|`numpy`",
    "def f(x):\n    return x._base": "`_base`",
    "def f(self):\n    self.linear.register_forward_hook(print)": "`register_forward_hook`",
    "def f(self):\n    w = self.weight\n    return w.untyped_storage()": "`untyped_storage`",
    # changes
    "torch.allclose = lambda *a: True": "attribute `allclose`",
    "del torch.allclose": "attribute `allclose`",
    "kernel.run = None": "attribute `run`",
    "for torch.add in [1]:\n    pass": "attribute `add`",
    "def f():\n    global BLOCK": "global variable",
    "def f(self):\n    self.answer = 1": "self.answer",
    "class A:\n    def seen(self, x):\n        self.x = x": "self.x",
    "def f(ctx):\n    ctx.x = 1": "attribute `x`",
    "class A:\n    def __init__(self, other):\n        other.x = 1": "attribute `x`",
    "class A:\n    def __init__(self):\n        self = torch\n        self.x = 1": "self.x",
    # classes
    "class Lazy(torch.Tensor):\n    pass": "derives a class from torch.Tensor",
    "class A:\n    pass\nA = torch.Tensor\nclass B(A):\n    pass": "derives a class from A",
    "import enum\nclass A(enum.EnumMeta):\n    pass": "derives a class from enum.EnumMeta",
    "import enum\nclass A(enum.Enum):\n    ONE = 1\nA.ONE.kept = 1": "attribute `kept`",
    "class A(metaclass=print):\n    pass": "metaclass",
    "async def f():\n    pass": "asynchronously",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_no_kernel_needs_is_refused_by_line(text):
    findings = find_violations(GOOD + text + "\n")
    assert findings, "it passes"
    assert findings[0].line > GOOD.count("\n")
    assert any(part in finding.reason for finding in findings for part in REFUSED[text].split("|"))


HARMLESS = [
    "from collections import namedtuple\nP = namedtuple('P', 'a b', defaults=(1,))",
    "def k(x, n: 'int', m: tl.constexpr = 1, t: torch.Tensor | None = None):\n    e = tl.load(x).to(x.dtype.element_ty)",
    "def g(v): return v.to(v.dtype)\ndef k(x, n):\n    tl.store(x + tl.arange(0, 8), g(tl.load(x + n)))",
    "def f(self):\n    return self.gr\u00f6\u00dfe  # \u03c3(x) = \u00bd\u00b7x\u00b2",
    "def f(self):\n    return self.get_parameter('x')",
    "class A:\n    pass",
    "import enum\nclass A(enum.Enum):\n    ONE = 1\ndef f(x, kind=A.ONE.value):\n    return kind == A.ONE.value",
    "from enum import IntEnum\nclass A(IntEnum):\n    ONE = 1\ndef f(x):\n    return x + A.ONE",
    "WARP = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), 'warp_size', 32)",
    "try:\n    pass\nexcept Exception:\n    pass",
    "cache, stream, thread, file = 1, 2, 3, 4",
    "def eval_stream(cache, exec=1):\n    return cache",
    "def f(input, id, type, vars):\n    return input + id + type + vars",
    "x = [id for id in (1, 2)]",
    "if __name__ == '__main__':\n    pass",
    "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A:\n    block: int = 1\ndef f(x):\n    return A(2).block",
    "import itertools\nCONFIGS = [triton.Config({'B': b}, num_warps=w) for b, w in itertools.product([1, 2], [4, 8])]",
    "def prune(configs, named_args, **kwargs):\n    return [c for c in configs if c.kwargs['B'] < c.kwargs.get('C', 1)]",
    "def f(x):\n    return torch.as_strided(x, (2,), (1,), x.storage_offset() + 1)",
    "@triton.jit\ndef k(x_ptr, N):\n    x = tl.load(x_ptr)\n    tl.store(x_ptr, (x + N).to(x.dtype))",
    "@triton.jit\ndef g(x):\n    return x.to(x.dtype)\n@triton.jit\ndef k(x_ptr):\n    g(tl.load(x_ptr))",
    "try:\n    from triton.language.extra import libdevice\nexcept ImportError:\n    libdevice = None",
    "try:\n    from triton.language.extra.cuda.libdevice import rsqrt\nexcept (ImportError, AttributeError):\n    rsqrt = None",
    "rsqrt = tl.rsqrt if hasattr(tl, 'rsqrt') else tl.math.rsqrt",
    "if torch.__version__ >= '2':\n    pass",
    "if tl is not None and not torch:\n    pass",
    "import torch.nn.functional as F\ndef f(x):\n    n, F = x.shape\n    kernel[(n,)](x, F)",
    "import torch.nn.functional as F\ny = F.silu",
    "nn = torch.nn\nG = nn.functional\ny = G.gelu",
    "from torch import nn, empty_like as like",
    "def f(layer):\n    return layer.weight, layer.bias, layer.hidden_size, layer.variance_epsilon",
    "def f(self):\n    return self._eps + self.data + self.block._hidden",
    "def f(self, x):\n    return self.net[0].weight + self.net[-1].hidden_size + self.layers[1](x) + self[0].bias",
    "def f(self):\n    return [layer.weight for layer in self.layers], len(self.layers), self.net[1:][0].eps",
    "def f(self):\n    s = self.linear.parametrizations.weight[0]\n    return s._u, self.blocks['up'][1]._scale",
    "def f(self):\n    return self.blocks['down-1'].weight, self.get_parameter('lambda'), [*self.blocks.items()]",
    "def f(self):\n    return torch.return_types.max((self.a, self.b)), torch.return_types.sort([self.a, self.b])",
    "def f(x):\n    y = x.clone()\n    y.add_(1).mul_(2)\n    return y.dim(), y.dtype.itemsize",
    "def f(x):\n    with torch.cuda.device(x.device):\n        return torch.cuda.get_device_properties(x.device).multi_processor_count",
    "DEVICE = triton.runtime.driver.active.get_active_torch_device()",
    "raise ValueError('{} and {n}'.format(1, n=2) + f'{BLOCK}' + '%s' % BLOCK)",
    "@triton.autotune([triton.Config({'BLOCK': 64}, num_warps=4)], key=['n'])\n@triton.jit\ndef k(n):\n    pass",
    "@triton.heuristics({'EVEN': lambda args: args['n'] % 2 == 0})\n@triton.jit\ndef k(n):\n    pass",
    "match BLOCK:\n    case int():\n        pass\n    case [first, *rest]:\n        pass",
    "class A:\n    def __init__(self, x):\n        super().__init__()\n        self.x = x",
    "class Error(ValueError):\n    pass\nclass Worse(Error):\n    pass",
    """class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.n = x.shape[0]
        return x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.n * x if ctx.needs_input_grad[0] else None

def g(x):
    return Add.apply(x)""",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_code_passes(text):
    assert find_violations(GOOD + text + "\n") == []


def test_a_comment_cannot_become_code_by_an_encoding():
    source = "# coding: unicode_escape\n" + GOOD + "# \\nimport os\n"
    compile(source.encode(), "attack", "exec")  # Python reads an import here
    assert "unicode_escape" in find_violations(source)[0].reason
    assert find_violations("# -*- coding: utf-8 -*-\n" + GOOD) == []
    assert "latin" in find_violations("'''x'''\r#vim: set fileencoding=latin-1\n" + GOOD)[0].reason


def test_one_finding_a_line_in_order():
    findings = find_violations(GOOD + "import os, sys\neval(open('x'))\nimport os\n")
    lines = [finding.line for finding in findings]
    assert lines == sorted(set(lines)) and len(lines) == 3


def test_text_that_is_no_python_is_refused():
    assert find_violations("def forward(:")[0].reason.startswith("is not Python")
    assert find_violations("x = '\x00'")[0].reason.startswith("is not Python")
    assert find_violations("x = '\ud800'")[0].reason.startswith("is not Python")


def test_text_that_is_hard_to_read_is_refused_and_not_fallen_over():
    assert find_violations("x = " + "(" * 5000)
    assert find_violations("x = " + "-" * 20000 + "1")
    assert find_violations("x = y" + ".a" * 20000)
    assert "longer" in find_violations("#" * (LONGEST_SOURCE + 1))[0].reason


def test_names_that_stand_for_each_other_cannot_keep_the_static_check_busy():
    tangle = "".join(f"a = b.x{i}\nb = a.y{i}\n" for i in range(9))
    assert "cannot be resolved" in find_violations(GOOD + tangle + "a.save")[0].reason
    assert (
        "too many things"
        in find_violations(GOOD + "".join(f"a = b{i}\n" for i in range(3000)) + "a.save")[0].reason
    )
    assert find_violations(GOOD + "def f(x):\n" + "    x = x.T\n    x = x.mT\n    x = x.data\n" * 20) == []
    assert find_violations(GOOD + "a = b\nb = a\nb = torch\na.save\n")[0].reason.startswith("uses torch.save")


def test_a_module_without_forward_is_refused():
    assert "forward" in find_violations("import torch")[0].reason


def resolved(path):
    """What a dotted path stands for, or None where this version of torch or triton has no such thing."""
    parts = path.split(".")
    for size in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:size]))
        except ImportError:
            continue
        for part in parts[size:]:
            if not hasattr(value, part):
                return None
            value = getattr(value, part)
        return value
    return None


def allowed_objects():
    for namespace, names in NAMESPACES.items():
        if not namespace.startswith("triton.runtime"):
            for name in names:
                value = resolved(f"{namespace}.{name}")
                if value is not None:
                    yield f"{namespace}.{name}", value


KERNELS = """
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x, B: tl.constexpr):
    pass

@triton.constexpr_function
def constant(x):
    return x

def forward(self):
    yield 1

class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad
"""


def objects_at_hand(folder):
    """Objects that a candidate can have, beside what the lists name."""
    path = folder / "kernels.py"
    path.write_text(KERNELS)
    spec = importlib.util.spec_from_file_location("kernels", path)
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    x = torch.ones(3, requires_grad=True)
    tuned = triton.autotune([triton.Config({"B": 1})], key=["x"])(kernels.kernel)
    findings = [kernels.kernel, kernels.constant, kernels.forward, kernels.forward(None), kernels.Same, tuned]
    findings += [triton.heuristics({"B": len})(tuned), kernels.kernel[(1,)], kernels.Same.apply(x), x, x * 2]
    findings += [
        x.detach().topk(1),
        x.shape,
        x.device,
        torch.nn.Linear(1, 1),
        torch.nn.Conv2d(1, 1, 1),
        torch.nn.Module(),
    ]
    findings += [
        torch.nn.Parameter(x),
        torch.finfo(x.dtype),
        torch.no_grad(),
        torch.autocast("cpu"),
        torch.cuda.device(-1),
    ]
    findings += [
        functools.partial(len),
        functools.cache(len),
        functools.wraps(len)(lambda: None),
        contextlib.nullcontext(1),
        contextlib.contextmanager(iter)([]),
        property(len),
        ValueError(1),
        AttributeError("x", name="x", obj=torch),
    ]
    return [(type(value).__name__, value) for value in findings]


@functools.cache
def may_be_touched(name):
    return find_violations(f"def forward(x):\n    x.{name}") == []


@pytest.mark.filterwarnings("ignore")
def test_nothing_that_may_be_touched_is_a_module_or_leads_to_one(tmp_path):
    """Everything is followed as far as the static check lets a candidate go by plain attributes, items and keys."""
    seen = set()
    queue = [(path, value, 3) for path, value in [*allowed_objects(), *objects_at_hand(tmp_path)]]
    assert len(queue) > 900
    while queue:
        path, value, depth = queue.pop(0)
        assert not isinstance(value, types.ModuleType | types.FrameType | types.CodeType), path
        assert not (isinstance(value, dict) and "__builtins__" in value), path
        if id(value) in seen or not depth:
            continue
        seen.add(id(value))
        items = value.items() if isinstance(value, dict) else []
        items = enumerate(value) if isinstance(value, list | tuple) else items
        queue += [(f"{path}[{key!r}]", item, depth - 1) for key, item in list(items)[:50]]
        for name in dir(value):
            if not name.startswith("_") and may_be_touched(name):
                with contextlib.suppress(Exception):
                    queue.append((f"{path}.{name}", getattr(value, name), depth - 1))


def test_the_lists_name_what_exists():
    """At least in the namespaces that every version has; a misspelt word would refuse honest kernels."""
    for namespace in (
        "math",
        "torch",
        "torch.nn.functional",
        "torch.fft",
        "torch.linalg",
        "torch.special",
        "triton",
    ):
        module = resolved(namespace)
        assert [name for name in NAMESPACES[namespace] if not hasattr(module, name)] in ([], ["cbrt", "exp2"])


def test_tritons_functions_have_nothing_else_to_touch():
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    classes = (Autotuner, Heuristics, InterpretedFunction, JITFunction)
    names = {name for cls in classes for name in dir(cls) if not name.startswith("_")}
    assert names <= INSIDE_TRITON | OTHER_MEMBERS | MEMBERS


def test_no_list_or_dictionary_inside_a_function_of_tritons_can_be_touched():
    @triton.jit
    def kernel(x_ptr, B: triton.language.constexpr):
        pass

    config = triton.Config({"B": 1})
    tuned = triton.autotune(configs=[config], key=["x_ptr"])(kernel)
    chosen = triton.heuristics({"B": lambda arguments: 1})(kernel)
    partial = {"keywords": functools.partial(print, end="").keywords}
    every = [*map(vars, (kernel, tuned, chosen, config)), partial]
    held = {name for each in every for name, value in each.items() if isinstance(value, list | dict | set)}
    assert {"cache", "configs", "kwargs", "keywords", "arg_names"} <= held
    public = {name for name in held if not name.startswith("_")}
    assert public - INSIDE_TRITON == {"keys", "values"}  # which static_check.state handles


def test_honest_kernels_of_the_corpus_pass():
    found = {entry.name: find_violations(entry.text) for entry in load() if entry.kind == "honest"}
    assert len(found) > 100
    assert not any(found.values()), found
