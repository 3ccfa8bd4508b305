"""Nothing that a kernel module keeps from one call to the next goes unseen; constants, and what a call makes, do."""

import contextlib
import sys
import types

import pytest
import torch

from kernelllm_judge.worker.kept import Kept

MODULE = """
import collections
import contextlib
import enum
import functools
import math
import typing
import torch
import triton
import triton.language as tl

{above}


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + 1, i < n)


def forward({arguments}):
    {first}
    return x + 1
"""


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Returns what two calls leave behind in a module."""

    def kept(above, first="pass", arguments="self, x"):
        file = tmp_path / "kernel_module.py"
        file.write_text(MODULE.format(above=above, first=first, arguments=arguments))
        module = types.ModuleType("kernel_module")
        monkeypatch.setitem(sys.modules, "kernel_module", module)
        module.__file__ = str(file)
        exec(compile(file.read_text(), file, "exec"), vars(module))
        before = Kept(module)
        for _ in range(2):
            with contextlib.suppress(KeyError, StopIteration):
                module.forward(types.SimpleNamespace(weight=torch.ones(3), training=False), torch.ones(4))
        return before.changed()

    return kept


DECORATOR = "def keep(function):\n    {above}def inner({signature}:\n        return function(x){body}\n    return inner\n"
DECORATED = "@keep\ndef helper(x): return x"
AUTOTUNED = (
    "@triton.autotune(configs=[triton.Config({'B': 1})], key=['n'])\n"
    "@triton.jit\ndef tuned(x_ptr, n, B: tl.constexpr): pass"
)
HEURISTIC = "@triton.heuristics({'B': lambda a: 1})\n@triton.jit\ndef chosen(x_ptr, n, B: tl.constexpr): pass"

KEEPS = {
    "a list of calls": ("CALLS = []", "CALLS.append(1)"),
    "a list that grows by assignment": ("CALLS = [0]", "CALLS[0] = CALLS[0] + 1"),
    "a list that grows in place": ("CALLS = [0]", "CALLS[0] += 1"),
    "a dictionary": ("KEPT = {}", "KEPT[x.shape] = x"),
    "a dictionary emptied": ("KEPT = {1: 2}", "del KEPT[1]"),
    "setdefault": ("KEPT = dict()", "y = KEPT.setdefault(1, x)"),
    "a set": ("SEEN = set()", "SEEN.add(1)"),
    "a comprehension": ("KEPT = [0 for _ in range(3)]", "KEPT.append(1)"),
    "another name in the call": ("KEPT = {}", "kept = KEPT; kept[1] = x"),
    "another name beside it": ("KEPT = {}\nSAME = KEPT", "SAME[1] = x"),
    "one of two in a tuple": ("A, KEPT = 1, []", "KEPT.append(A)"),
    "handed to a helper": ("KEPT = {}\ndef run_probe(where): where[1] = 2", "run_probe(KEPT)"),
    "returned by a helper": ("KEPT = {}\ndef it(): return KEPT", "it()[1] = x"),
    "a list in a tuple": ("KEPT = (0, [])", "KEPT[1].append(x)"),
    "a list in a dictionary": ("KEPT = {'a': []}", "KEPT['a'].append(x)"),
    "a list put into a dictionary": ("KEPT = {}\nKEPT['a'] = []", "KEPT['a'].append(x)"),
    "a list appended to a list": ("KEPT = []\nKEPT.append([])", "KEPT[0].append(x)"),
    "a list in a loop": ("for KEPT in ([],): pass", "KEPT.append(x)"),
    "an iterator": ("COUNT = iter(range(10**9))", "n = next(COUNT)"),
    "a generator": ("COUNT = (i for i in range(10**9))", "n = next(COUNT)"),
    "enumerate": ("COUNT = enumerate(range(10**9))", "n = next(COUNT)"),
    "map": ("COUNT = map(int, range(10**9))", "n = next(COUNT)"),
    "a tensor": ("COUNT = torch.zeros(1)", "COUNT.add_(1)"),
    "a tensor by assignment expression": ("(COUNT := torch.zeros(1))", "COUNT.add_(1)"),
    "an instance": ("class Box: pass\nBOX = Box()", "BOX.x = 1"),
    "an instance's list": (
        "class Box:\n    def __init__(self): self.kept = []\nBOX = Box()",
        "BOX.kept.append(1)",
    ),
    "a list of a class": ("class Box:\n    kept = []", "Box.kept.append(1)"),
    "a dictionary of a class": ("class Box:\n    kept = {}", "Box().kept[1] = x"),
    "a closure by decorator": (
        "def remember(f):\n"
        "    kept = []\n"
        "    def g(x):\n"
        "        kept.append(1)\n"
        "        return f(x)\n"
        "    return g\n"
        "@remember\n"
        "def helper(x): return x",
        "helper(x)",
    ),
    "a closure by call": (
        "def make():\n"
        "    kept = []\n"
        "    def count():\n"
        "        kept.append(1)\n"
        "        return len(kept)\n"
        "    return count\n"
        "count = make()",
        "count()",
    ),
    "one of two names in one assignment": ("A = KEPT = []\nA.append([])", "KEPT[0].append(1)"),
    "an assignment expression in another": ("A = (KEPT := [])\nA.append([])", "KEPT[0].append(1)"),
    "a comparison of tensors": ("KEPT = torch.zeros(1) == 0", "KEPT.fill_(1)"),
    "a slice by name": ("S = slice(None)\nKEPT = [1, 2][S]", "KEPT.append(1)"),
    "what sum starts with": ("KEPT = []", "kept = sum([], KEPT); kept.append(1)"),
    "what there is by default": ("KEPT = []", "kept = max([], default=KEPT); kept.append(1)"),
    "an autograd function's context": (
        "class Fn(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x): ctx.calls = 1; return x",
        "Fn.forward(kernel, x); kernel.calls",
    ),
    "an autograd function's context by name": (
        "class Fn(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x): ctx.calls = 1; return x",
        "write = Fn.forward; write(kernel, x)",
    ),
    "another method of an autograd function": (
        "class Fn(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def note(ctx, x): ctx.calls = 1; return x",
        "Fn.note(kernel, x)",
    ),
    "captured by match": ("match []:\n    case KEPT: pass", "KEPT.append(1)"),
    "captured by a star": ("*KEPT, a = 1, 2", "KEPT.append(1)"),
    "captured by a star of a name": ("PAIR = (1, 2)\n*KEPT, = PAIR", "KEPT.append(1)"),
    "captured by a star in a loop": ("for *KEPT, a in ((1, 2),): pass", "KEPT.append(1)"),
    "bound inside a comprehension": ("OTHER = [(KEPT := []) for _ in (1,)]", "KEPT.append(1)"),
    "what a method makes": ("KEPT = 'a b'.split()", "KEPT.append(1)"),
    "a slice": ("KEPT = [1, 2][:]", "KEPT.append(1)"),
    "the larger of two lists": ("KEPT = max([1], [2])", "KEPT.append(1)"),
    "a sum of lists": ("KEPT = sum([[1]], [])", "KEPT.append(1)"),
    "inside a compile-time constant": ("KEPT = tl.constexpr([])", "KEPT.value.append(1)"),
    "inside a tuple of Triton": ("KEPT = tl.tuple([1])", "KEPT.values.append(1)"),
    "inside a configuration": ("CONFIG = triton.Config({'B': 1})", "CONFIG.kwargs['n'] = 1"),
    "the autotuner's configurations": (
        "@triton.autotune(configs=[triton.Config({'B': 1})], key=['n'])\n"
        "@triton.jit\n"
        "def tuned(x_ptr, n, B: tl.constexpr): pass",
        "tuned.configs.append(1)",
    ),
    "the autotuner's keys": (
        "@triton.autotune(configs=[triton.Config({'B': 1})], key=['n'])\n"
        "@triton.jit\n"
        "def tuned(x_ptr, n, B: tl.constexpr): pass",
        "tuned.keys.append('n')",
    ),
    "the autotuner's keys by another name": (
        "@triton.autotune(configs=[triton.Config({'B': 1})], key=['n'])\n"
        "@triton.jit\n"
        "def tuned(x_ptr, n, B: tl.constexpr): pass",
        "keys = tuned.keys; keys.append('n')",
    ),
    "the heuristics' values": (
        "@triton.heuristics({'B': lambda a: 1})\n@triton.jit\ndef chosen(x_ptr, n, B: tl.constexpr): pass",
        "chosen.values['B'] = 1",
    ),
    "the heuristics' values by another name": (
        "@triton.heuristics({'B': lambda a: 1})\n@triton.jit\ndef chosen(x_ptr, n, B: tl.constexpr): pass",
        "values = chosen.values; values['B'] = 1",
    ),
    "the heuristics' values by two names": (
        "@triton.heuristics({'B': lambda a: 1})\n@triton.jit\ndef chosen(x_ptr, n, B: tl.constexpr): pass",
        "other = chosen if x is None else chosen; values = other.values; values['B'] = 1",
    ),
    "the heuristics' values by a helper": (
        "@triton.heuristics({'B': lambda a: 1})\n"
        "@triton.jit\n"
        "def chosen(x_ptr, n, B: tl.constexpr): pass\n"
        "def helper(): return chosen",
        "values = helper().values; values['B'] = 1",
    ),
    "the heuristics' values by an argument": (
        "@triton.heuristics({'B': lambda a: 1})\n"
        "@triton.jit\n"
        "def chosen(x_ptr, n, B: tl.constexpr): pass\n"
        "def helper(x): values = x.values; values['B'] = 1",
        "helper(chosen)",
    ),
    "the names of a kernel's arguments": ("", "kernel.arg_names.append('a')"),
    "the keywords of a partial function": (
        "def f(a, b=1): return a\ng = functools.partial(f, b=1)",
        "g.keywords['b'] = 2",
    ),
    "a cache of tensors": ("@functools.cache\ndef f(t): return t * 2", "y = f(x)"),
    "a cache of what a tensor holds": (
        "@functools.lru_cache(maxsize=None)\ndef f(t): return int(t.sum())",
        "y = f(x)",
    ),
    "a cache that gets a tensor": ("@functools.cache\ndef f(t): return 1 if t is None else 2", "y = f(x)"),
    "a cache that gets what may be one": (
        "@functools.cache\ndef f(n): return n\ndef g(n): return f(n)",
        "y = g(x)",
    ),
    "a cache that gets one of several": (
        "@functools.cache\ndef f(n): return n + 1",
        "n = 1\n    n, m = x, 2\n    y = f(n)",
    ),
    "a cache that gets a field": (
        "import typing\n"
        "class Box(typing.NamedTuple):\n"
        "    shape: object\n"
        "@functools.cache\n"
        "def f(n): return n",
        "y = f(Box(x).shape)",
    ),
    "a cache that gets a field by another way": (
        "import collections\n"
        "Box = collections.namedtuple('Box', ['shape'])\n"
        "@functools.cache\n"
        "def f(n): return n",
        "y = f(Box(x).shape)",
    ),
    "a cache that gets a field of a record": (
        "import typing\n"
        "Box = typing.NamedTuple('Box', [('sha' + 'pe', object)])\n"
        "@functools.cache\n"
        "def f(n): return n",
        "y = f(Box(x).shape)",
    ),
    "a cache that gets what a context holds": (
        "@functools.cache\n"
        "def f(n): return n\n"
        "class Fn(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, y):\n"
        "        ctx.shape = y\n"
        "        return f(ctx.shape)",
        "Fn.apply(x)",
    ),
    "a cache that gets a captured name": (
        "@functools.cache\ndef f(n): return n",
        "n = 1\n    match x:\n        case n: pass\n    y = f(n)",
    ),
    "a cache that gets a loop's tensor": (
        "@functools.cache\ndef f(n): return n",
        "n = 1\n    for n in [x]: y = f(n)",
    ),
    "a cache of a list": ("@functools.cache\ndef f(): return []", "f().append(1)"),
    "a cache of a list by name": (
        "@functools.cache\ndef f():\n    kept = []\n    return kept",
        "f().append(1)",
    ),
    "a cache of a list's maker": (
        "def made(): return [0]\n@functools.cache\ndef f(): return made()",
        "f()[0] += 1",
    ),
    "a cache of a buffer": ("@functools.cache\ndef f(n): return torch.empty(n)", "y = f(x.shape[0])"),
    "a cache of a closure": ("@functools.cache\ndef f(): return iter(range(9))", "y = next(f())"),
    "a cache of a generator": ("@functools.cache\ndef f():\n    yield 1", "y = next(f())"),
    "a cache by another name": ("from functools import lru_cache as c\n@c\ndef f(t): return t", "f(x)"),
    "a cache by an alias": ("c = functools.cache\n@c\ndef f(t): return t", "f(x)"),
    "a decorator with a list": (
        "def d(fn):\n"
        "    kept = []\n"
        "    def inner(ctx, y):\n"
        "        kept.append(y)\n"
        "        return fn(ctx, kept[0])\n"
        "    return inner\n"
        "class Fn(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    @d\n"
        "    def forward(ctx, y): return y",
        "Fn.apply(x)",
    ),
    "a decorator of a cached function's helper": (
        "def d(fn):\n"
        "    def inner(n):\n"
        "        return [fn(n)]\n"
        "    return inner\n"
        "@d\n"
        "def helper(n): return n\n"
        "@functools.cache\n"
        "def f(n): return helper(n)",
        "f(1).append(1)",
    ),
    "a decorator of a cached function": (
        "def d(fn):\n"
        "    def inner(n):\n"
        "        return [fn(n)]\n"
        "    return inner\n"
        "@functools.cache\n"
        "@d\n"
        "def f(n): return n",
        "f(1).append(1)",
    ),
    "an enumeration of lists": ("import enum\nclass E(enum.Enum):\n    ONE = [1]", "E.ONE.value.append(1)"),
    "a list in a null context": (
        "import contextlib\nN = contextlib.nullcontext([])",
        "with N as kept: kept.append(1)",
    ),
    "a name for autocasting that becomes a function": (
        "keep = functools.partial(torch.amp.custom_fwd, "
        "device_type='cuda')\n"
        "def keep(function):\n"
        "    items = []\n"
        "    def inner(x): return items.append(x)\n"
        "    return inner\n"
        "@keep\n"
        "def helper(x): return x",
        "helper(x)",
    ),
}


@pytest.mark.parametrize(("above", "first"), KEEPS.values(), ids=KEEPS.keys())
def test_what_is_kept_is_seen(kept, above, first):
    assert kept(above, first)


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        ("self, x, kept=[]", "kept.append(1)"),
        ("self, x, *, kept={}", "kept[1] = x"),
        ("self, x, count=iter(range(99))", "next(count)"),
    ],
)
def test_a_default_argument_outlives_the_call(kept, arguments, first):
    assert kept("", first, arguments)


def test_it_is_named_by_where_it_is_kept(kept):
    assert kept("CALLS = [0]", "CALLS[0] += 1") == ["what a call has done in `CALLS[0]`"]
    assert kept("KEPT = {}", "KEPT[1] = x")[0] == "a Tensor in `KEPT[1]`"


FIXED = {
    "numbers": ("BLOCK = 1 << 10\nSCALE = 1.0 / math.sqrt(2)\nWIDE = BLOCK * 2 if BLOCK else 0", "y = BLOCK * SCALE"),
    "a compile-time constant": ("BLOCK: tl.constexpr = tl.constexpr(64)", "y = BLOCK"),
    "a tuple": ("SIZES = (64, 128)", "y = SIZES[0]; z = max(SIZES)"),
    "a list that is read": ("SIZES = [2**k for k in range(4)]", "y = [s for s in SIZES if s in SIZES and s < len(SIZES)]"),
    "a list that is gone over": ("SIZES = [1, 2]", "total = sum(s for s in SIZES)\n    for s in SIZES: total += s"),
    "a dictionary of dtypes": ("TYPES = {torch.float32: tl.float32}", "y = TYPES[x.dtype]; z = TYPES.get(x.dtype)"),
    "options handed over": ("OPTIONS = {'BLOCK': 64}\ndef g(BLOCK): return BLOCK", "g(**OPTIONS)"),
    "a dictionary's items": ("OPTIONS = {'BLOCK': 64}", "y = [(k, v) for k, v in OPTIONS.items()]"),
    "configurations": ("CONFIGS = [triton.Config({'B': b}, num_warps=w) for b in (1, 2) for w in (4, 8)]\ntune = triton.autotune(configs=CONFIGS, key=['n'])", "pass"),
    "configurations by a function": ("def configs(): return [triton.Config({'B': b}) for b in (1, 2)]\ntune = triton.autotune(configs=configs(), key=['n'])", "pass"),
    "a function that joins": ("def text(n): return ','.join(str(i) for i in range(n))\nTEXT = tl.constexpr(text(3))", "pass"),
    "a lambda": ("cdiv = lambda a, b: -(-a // b)", "y = cdiv(3, 2)"),
    "whether something can be imported": ("try:\n    from triton.language.extra import libdevice\n    HAVE = True\nexcept ImportError:\n    HAVE = False", "y = HAVE"),
    "parts of a tensor": ("", "out = torch.empty_like(x); out[0] = 1; out.T[0] = 1; out.data[0] = 1"),
    "the values of a maximum": ("", "y = torch.max(x, 0).values; findings = x.topk(2); z = findings.values; findings = torch.sort(x); z = findings.values"),
    "the keys of a dictionary": ("SIZES = {1: 2}", "y = list(SIZES.keys()) + list(SIZES.values())"),
    "a local list": ("", "parts = []; parts.append(x); table = {}; table[1] = x"),
    "a grid that reads what is around it": ("", "n = x.numel(); grid = lambda meta: (triton.cdiv(n, meta['BLOCK']),)"),
    "a partial function of a fixed one": ("def f(a, b): return a\ng = functools.partial(f, 1)", "g(2)"),
    "a class of one's own": ("class Fn(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x", "Fn.apply(x)"),
    "default arguments": ("def g(x, size=(1, 2), scale=1.0 / math.sqrt(2), dtype=torch.float32, block=None): return size", "g(x)"),
    "a default list that is read": ("def g(x, dims=[0, 1]): return x.sum(dims[0]), len(dims)", "g(x)"),
    "names of the same kind elsewhere": ("KEPT = []", "KEPT = []; KEPT.append(1)"),
    "a cache of settings": (
        "@functools.lru_cache(maxsize=None)\ndef settings(n, dtype):\n    block = min(1024, triton.next_power_of_2(n))\n    warps = 4\n"
        "    if block >= 512:\n        warps = 8\n    return block, warps if dtype == torch.float32 else 4",
        "rows, n = x.shape[0], 4; block, warps = settings(n, x.dtype); z = settings(x.size(0) * 2, dtype=torch.float16)",
    ),
    "a decorator that calls": (
        "def contiguous(fn):\n    'Makes tensors contiguous.'\n    @functools.wraps(fn)\n    def inner(ctx, *args):\n"
        "        def one(y): return y.contiguous() if isinstance(y, torch.Tensor) else y\n"
        "        return fn(ctx, *[one(y) for y in args])\n    return inner\n"
        "class Fn(torch.autograd.Function):\n    @staticmethod\n    @contiguous\n    def forward(ctx, y):\n        ctx.n = 1\n        return y",
        "Fn.apply(x)",
    ),
    "a decorator of a function": (
        "def contiguous(fn):\n    @functools.wraps(fn)\n    def inner(*args):\n        return fn(*[y.contiguous() for y in args])\n"
        "    return inner\n@contiguous\ndef other(y): return y",
        "other(x)",
    ),
    "autocast with fixed arguments": (
        "import functools\ncustom = functools.partial(torch.amp.custom_fwd, device_type='cuda')\n"
        "class Fn(torch.autograd.Function):\n    @staticmethod\n    @custom\n    def forward(ctx, y): return y",
        "Fn.apply(x)",
    ),
    "an alias of an autograd function": (
        "class Fn(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x\nrun = Fn.apply", "run(x)",
    ),
    "contexts": (
        "import contextlib\n@contextlib.contextmanager\ndef on(device):\n    yield device\nHERE = contextlib.nullcontext()",
        "with on(x.device), contextlib.nullcontext(), HERE: pass",
    ),
    "a named tuple": ("import collections\nPair = collections.namedtuple('Pair', ['first', 'second'])", "y = Pair(x, x).first"),
    "words": ("CACHE_LINES = 4\nstate_size = 16", "cache = x; state = CACHE_LINES * state_size"),
}  # fmt: skip


FIXED |= {
    "an enumeration with a method": (
        'class Way(enum.Enum):\n    """Ways."""\n\n    A = "a"\n    B = "b"\n'
        "    def is_first(self): return self is Way.A",
        "first = Way.A.is_first()",
    ),
    "a decorator that passes calls on": (
        DECORATOR.format(above="@functools.wraps(function)\n    ", signature="x)", body="") + DECORATED,
        "helper(x)",
    ),
}


@pytest.mark.parametrize(("above", "first"), FIXED.values(), ids=FIXED.keys())
def test_constants_and_what_a_call_makes_are_fine(kept, above, first):
    assert kept(above, first) == []
