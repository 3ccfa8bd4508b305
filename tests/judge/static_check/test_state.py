"""Nothing that a kernel module's Python could keep from one call to the next passes the static check; constants do."""

import pytest

from kernelllm_judge.static_check.static_check import find_violations

MODULE = """
import enum
import functools
import math
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
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""


def findings(above, first="pass", arguments="self, x"):
    return find_violations(MODULE.format(above=above, first=first, arguments=arguments))


AUTOTUNED = (
    "@triton.autotune(configs=[triton.Config({'B': 1})], key=['n'])\n"
    "@triton.jit\ndef tuned(x_ptr, n, B: tl.constexpr): pass"
)
HEURISTIC = "@triton.heuristics({'B': lambda a: 1})\n@triton.jit\ndef chosen(x_ptr, n, B: tl.constexpr): pass"

KEEPS = {
    "a list of the target's, by index": ("", "self.tables[0].append(x)"),
    "a dictionary of the target's, by index": ("", "self.tables[0]['x'] = x"),
    "one of the target's lists by another name": ("", "table = self.tables[0]; table.append(x)"),
    "a part of the target's": ("", "self.layers[0] = x"),
    "an attribute of a part": ("", "self.layers[0].eps = 1.0"),
    "a list of a part": ("", "self.layers[0].sizes.append(1)"),
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
    "the first of two names": ("KEPT = {}\nSAME = KEPT", "y = KEPT.get(1)"),
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
    "a tensor that a kernel fills": ("COUNT = torch.zeros(1)", "kernel[(1,)](x, COUNT, 1, BLOCK=1)"),
    "a tensor by assignment expression": ("(COUNT := torch.zeros(1))", "COUNT.add_(1)"),
    "an instance": ("class Box: pass\nBOX = Box()", "BOX.x = 1"),
    "an instance's list": (
        "class Box:\n    def __init__(self): self.kept = []\nBOX = Box()",
        "BOX.kept.append(1)",
    ),
    "a list of a class": ("class Box:\n    kept = []", "Box.kept.append(1)"),
    "a dictionary of a class": ("class Box:\n    kept = {}", "Box().kept[1] = x"),
    "a closure by decorator": (
        "def remember(f):\n    kept = []\n    def g(x):\n        kept.append(1)\n        return f(x)\n    return g\n"
        "@remember\ndef helper(x): return x",
        "helper(x)",
    ),
    "a closure by call": (
        "def make():\n    kept = []\n    def count():\n        kept.append(1)\n        return len(kept)\n    return count\n"
        "count = make()",
        "count()",
    ),
    "a closure for the autotuner": (
        "def hook():\n    kept = []\n    return lambda arguments: kept.append(1)\n"
        "tuned = triton.heuristics({'A': hook()})",
        "pass",
    ),
    "a closure of a lambda": (
        "tuned = triton.heuristics({'A': (lambda kept: lambda a: kept.append(1))([])})",
        "pass",
    ),
    "a closure of a comprehension": (
        "tuned = triton.heuristics([{'A': lambda a: kept.append(1)} for kept in [[]]][0])",
        "pass",
    ),
    "a partial function": (
        "tuned = triton.heuristics({'A': functools.partial(next, iter(range(9)))})",
        "pass",
    ),
    "a partial function of one's own": (
        "def run_probe(kept, a): kept.append(a)\nput1 = functools.partial(put, [])",
        "put1(1)",
    ),
    "a method of a list": ("KEPT = []\ntuned = triton.Config({}, pre_hook=KEPT.append)", "pass"),
    "one of two names in one assignment": ("A = KEPT = []\nA.append([])", "KEPT[0].append(1)"),
    "an assignment expression in another": ("A = (KEPT := [])\nA.append([])", "KEPT[0].append(1)"),
    "a comparison of tensors": ("KEPT = torch.zeros(1) == 0", "KEPT.fill_(1)"),
    "a slice by name": ("S = slice(None)\nKEPT = [1, 2][S]", "KEPT.append(1)"),
    "what sum starts with": ("KEPT = []", "kept = sum([], KEPT); kept.append(1)"),
    "the larger of two in the call": ("KEPT = []", "kept = max(KEPT, [-1]); kept.append(1)"),
    "what there is by default": ("KEPT = []", "kept = max([], default=KEPT); kept.append(1)"),
    "an autograd function's context": (
        "class Fn(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): ctx.calls = 1; return x",
        "Fn.forward(kernel, x); kernel.calls",
    ),
    "an autograd function's context by name": (
        "class Fn(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): ctx.calls = 1; return x",
        "write = Fn.forward; write(kernel, x)",
    ),
    "another method of an autograd function": (
        "class Fn(torch.autograd.Function):\n    @staticmethod\n    def note(ctx, x): ctx.calls = 1; return x",
        "Fn.note(kernel, x)",
    ),
    "the target's list by a method of another class": (
        "class Box:\n    def run_probe(self, x): self.sizes.append(x)",
        "Box.run_probe(self, x)",
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
    "the autotuner's cache": (AUTOTUNED, "tuned.cache[1] = 2"),
    "the autotuner's cache by another name": (AUTOTUNED, "cache = tuned.cache; cache[1] = 2"),
    "the autotuner's configurations": (AUTOTUNED, "tuned.configs.append(1)"),
    "the autotuner's keys": (AUTOTUNED, "tuned.keys.append('n')"),
    "the autotuner's keys by another name": (AUTOTUNED, "keys = tuned.keys; keys.append('n')"),
    "the heuristics' values": (HEURISTIC, "chosen.values['B'] = 1"),
    "the heuristics' values by another name": (HEURISTIC, "values = chosen.values; values['B'] = 1"),
    "the heuristics' values by two names": (
        HEURISTIC,
        "other = chosen if x is None else chosen; values = other.values; values['B'] = 1",
    ),
    "the heuristics' values by a helper": (
        HEURISTIC + "\ndef helper(): return chosen",
        "values = helper().values; values['B'] = 1",
    ),
    "the heuristics' values by an argument": (
        HEURISTIC + "\ndef helper(x): values = x.values; values['B'] = 1",
        "helper(chosen)",
    ),
    "the names of a kernel's arguments": ("", "kernel.arg_names.append('a')"),
    "the keywords of a partial function": (
        "def f(a, b=1): return a\ng = functools.partial(f, b=1)",
        "g.keywords['b'] = 2",
    ),
    "the target's options": ("", "self.options['a'] = 1"),
    "the target's options by another name": ("", "options = self.options; options['a'] = 1"),
    "the target's weight": ("", "self.weight[0] = 1"),
    "the target's list": ("", "self.sizes.append(1)"),
    "the target's list by another name": ("", "sizes = self.sizes; sizes.append(1)"),
    "the target's dictionary": ("", "self.options.update(a=1)"),
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
        "import typing\nclass Box(typing.NamedTuple):\n    shape: object\n@functools.cache\ndef f(n): return n",
        "y = f(Box(x).shape)",
    ),
    "a cache that gets a field by another way": (
        "import collections\nBox = collections.namedtuple('Box', ['shape'])\n@functools.cache\ndef f(n): return n",
        "y = f(Box(x).shape)",
    ),
    "a cache that gets a field of a record": (
        "import typing\nBox = typing.NamedTuple('Box', [('sha' + 'pe', object)])\n@functools.cache\ndef f(n): return n",
        "y = f(Box(x).shape)",
    ),
    "a cache that gets what a context holds": (
        "@functools.cache\ndef f(n): return n\nclass Fn(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, y):\n        ctx.shape = y\n        return f(ctx.shape)",
        "Fn.apply(x)",
    ),
    "a cache that gets a captured name": (
        "@functools.cache\ndef f(n): return n",
        "n = 1\n    match x:\n        case n: pass\n    y = f(n)",
    ),
    "a cache that gets an exception": (
        "@functools.cache\ndef f(n): return n",
        "n = 1\n    try: pass\n    except ValueError as n: y = f(n)",
    ),
    "a cache that gets a loop's tensor": (
        "@functools.cache\ndef f(n): return n",
        "n = 1\n    for n in [x]: y = f(n)",
    ),
    "a cache that gets what the target has": ("@functools.cache\ndef f(n): return n", "y = f(self.shape)"),
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
    "a cache's counter": ("@functools.cache\ndef f(n): return n + 1", "y = f(1); z = f.cache_info()"),
    "a cache made in passing": ("def f(n): return n\ng = functools.cache(f)", "g(1)"),
    "a cache by another name": ("from functools import lru_cache as c\n@c\ndef f(t): return t", "f(x)"),
    "a cache by an alias": ("c = functools.cache\n@c\ndef f(t): return t", "f(x)"),
    "a cache of one of two functions": ("@functools.cache\ndef f(n): return n\ndef f(n): return [n]", "f(1)"),
    "a decorator with a list": (
        "def d(fn):\n    kept = []\n    def inner(ctx, y):\n        kept.append(y)\n        return fn(ctx, kept[0])\n"
        "    return inner\nclass Fn(torch.autograd.Function):\n    @staticmethod\n    @d\n    def forward(ctx, y): return y",
        "Fn.apply(x)",
    ),
    "a decorator with a default": (
        "def d(fn):\n    def inner(ctx, y, kept=[]):\n        return fn(ctx, y)\n    return inner\n"
        "class Fn(torch.autograd.Function):\n    @staticmethod\n    @d\n    def forward(ctx, y): return y",
        "Fn.apply(x)",
    ),
    "a decorator that returns another function": (
        "def d(fn):\n    def inner(ctx, y):\n        return y\n    return inner\n"
        "class Fn(torch.autograd.Function):\n    @staticmethod\n    @d\n    def forward(ctx, y): return y",
        "Fn.apply(x)",
    ),
    "a decorator of a cached function's helper": (
        "def d(fn):\n    def inner(n):\n        return [fn(n)]\n    return inner\n@d\ndef helper(n): return n\n"
        "@functools.cache\ndef f(n): return helper(n)",
        "f(1).append(1)",
    ),
    "a decorator of a cached function": (
        "def d(fn):\n    def inner(n):\n        return [fn(n)]\n    return inner\n@functools.cache\n@d\ndef f(n): return n",
        "f(1).append(1)",
    ),
    "a partial function as a decorator": (
        "def keep(kept, fn): return fn\ncustom = functools.partial(keep, [])\n"
        "class Fn(torch.autograd.Function):\n    @staticmethod\n    @custom\n    def forward(ctx, y): return y",
        "Fn.apply(x)",
    ),
    "autocast by a name with two meanings": (
        "def keep(fn): return fn\ncustom = functools.partial(torch.amp.custom_fwd, device_type='cuda')\ncustom = keep\n"
        "class Fn(torch.autograd.Function):\n    @staticmethod\n    @custom\n    def forward(ctx, y): return y",
        "Fn.apply(x)",
    ),
    "an enumeration of lists": ("import enum\nclass E(enum.Enum):\n    ONE = [1]", "E.ONE.value.append(1)"),
    "a decorator of a class": (
        "def d(cls):\n    def inner(y):\n        return cls(y)\n    return inner\n@d\nclass Kept:\n    pass",
        "Kept(x)",
    ),
    "a context that was opened on import": (
        "import contextlib\n@contextlib.contextmanager\ndef c():\n    kept = []\n    yield kept\nOPEN = c()",
        "OPEN.__enter__()",
    ),
    "a list in a null context": (
        "import contextlib\nN = contextlib.nullcontext([])",
        "with N as kept: kept.append(1)",
    ),
}


DECORATOR = "def keep(function):\n    {above}def inner({signature}:\n        return function(x){body}\n    return inner\n"
DECORATED = "@keep\ndef helper(x): return x"
KEEPS |= {
    "what an enumeration's constructor makes": (
        "class Way(enum.Enum):\n    A = 0\n    def __init__(self, value): self.items = []",
        "items = Way.A.items; items.append(x)",
    ),
    "what another class's constructor makes for its members": (
        "class Base:\n    def __init__(self, value): self.items = []\nclass Way(Base, enum.Enum): A = 0",
        "items = Way.A.items; items.append(x)",
    ),
    "an enumeration without members, to derive from": (
        "class Base(enum.Enum): pass\n"
        "class Way(Base):\n    A = 0\n    def __init__(self, value): self.items = []",
        "items = Way.A.items; items.append(x)",
    ),
    "an enumeration's hook as a lambda": (
        "class Way(enum.IntEnum):\n    A = 0\n    _missing_ = lambda value: Way.A",
        "",
    ),
    "a decorator that makes an enumeration": (
        "class Base:\n"
        "    def __init__(self, value): self.items = []\n"
        "    @classmethod\n    def _missing_(cls, value): return next(iter(cls))\n"
        "    def __call__(self, x): return x\n"
        "@enum.Enum('Way', 'A', type=Base)\ndef helper(x): return x",
        "",
    ),
    "a decorator's name that becomes a class": (
        DECORATOR.format(above="", signature="x)", body="")
        + "class Kept:\n    def __init__(self, function): self.items = []\n    def __call__(self, x): return x\n"
        + "keep = Kept\n"
        + DECORATED,
        "helper(x)",
    ),
    "a decorator's variable, bound in an annotation": (
        DECORATOR.format(above="", signature="x: (items := []))", body=" + items.pop()") + DECORATED,
        "helper(x)",
    ),
    "a decorator's variable, bound in what is returned": (
        DECORATOR.format(above="", signature="x) -> (items := [])", body=" + items.pop()") + DECORATED,
        "helper(x)",
    ),
    "a decorator's variable, bound for functools.wraps": (
        DECORATOR.format(
            above="@functools.wraps(items := [])\n    ", signature="x)", body=" + function(items.pop())"
        )
        + DECORATED,
        "helper(x)",
    ),
    "a name for autocasting that becomes a function": (
        "keep = functools.partial(torch.amp.custom_fwd, device_type='cuda')\n"
        "def keep(function):\n    items = []\n    def inner(x): return items.append(x)\n    return inner\n"
        + DECORATED,
        "helper(x)",
    ),
}


@pytest.mark.parametrize(("above", "first"), KEEPS.values(), ids=KEEPS.keys())
def test_what_keeps_something_is_refused(above, first):
    [finding, *_] = findings(above, first)
    words = ("keep state between calls", "attribute", "touches", "annotates", "fields of a tuple")
    assert any(each in finding.reason for each in words), finding


def test_forward_itself_cannot_be_decorated():
    above = "def d(fn):\n    @functools.wraps(fn)\n    def inner(a, y):\n        return fn(a, y)\n    return inner\n"
    source = MODULE.format(above=above, first="pass", arguments="self, x")
    [finding] = find_violations(source.replace("def forward", "@d\ndef forward"))
    assert "decorates `forward`" in finding.reason


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        ("self, x, kept=[]", "kept.append(1)"),
        ("self, x, *, kept={}", "kept[1] = x"),
        ("self, x, count=iter(range(9))", "n = next(count)"),
        ("self, x, buffer=torch.zeros(1)", "buffer.add_(1)"),
        ("self, x, kept=[[]]", "kept[0].append(1)"),
    ],
)
def test_a_default_argument_outlives_the_call(arguments, first):
    [finding, *_] = findings("", first, arguments)
    assert "keep state between calls" in finding.reason


def test_the_reason_names_the_line_and_the_name():
    [finding] = findings("KEPT = {}", "KEPT[1] = x")
    assert MODULE.format(above="KEPT = {}", first="KEPT[1] = x", arguments="").splitlines()[
        finding.line - 1
    ].strip() == ("KEPT[1] = x")
    assert "`KEPT`" in finding.reason


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
    "a jitted function": ("def plain(x): return x\njitted = triton.jit(plain)", "jitted[(1,)](x)"),
    "the GPU's properties": ("COUNT = torch.cuda.get_device_properties(0).multi_processor_count", "y = COUNT"),
    "the driver's properties": ("PROPERTIES = triton.runtime.driver.active.utils.get_device_properties(0)", "y = PROPERTIES['multiprocessor_count']"),
    "whether something can be imported": ("try:\n    from triton.language.extra import libdevice\n    HAVE = True\nexcept ImportError:\n    HAVE = False", "y = HAVE"),
    "parts of a tensor": ("", "out = torch.empty_like(x); out[0] = 1; out.T[0] = 1; out.data[0] = 1"),
    "the values of a maximum": ("", "y = torch.max(x, 0).values; findings = x.topk(2); z = findings.values; findings = torch.sort(x); z = findings.values"),
    "the keys of a dictionary": ("SIZES = {1: 2}", "y = list(SIZES.keys()) + list(SIZES.values())"),
    "launching tuned kernels": (AUTOTUNED + "\n" + HEURISTIC, "k = tuned if x is None else chosen; k[(1,)](x, 1); tuned[(1,)](x, 1)"),
    "a local list": ("", "parts = []; parts.append(x); table = {}; table[1] = x"),
    "a grid that reads what is around it": ("", "n = x.numel(); grid = lambda meta: (triton.cdiv(n, meta['BLOCK']),)"),
    "a partial function of a fixed one": ("def f(a, b): return a\ng = functools.partial(f, 1)", "g(2)"),
    "a class of one's own": ("class Fn(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x", "Fn.apply(x)"),
    "an autograd function without autograd": ("class Fn(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return Other.forward(ctx, x)\nclass Other(Fn): pass", "Fn.forward(None, x); Fn.apply(x)"),
    "a layer of the target's": ("", "self.linear.forward(x)"),
    "default arguments": ("def g(x, size=(1, 2), scale=1.0 / math.sqrt(2), dtype=torch.float32, block=None): return size", "g(x)"),
    "a default list that is read": ("def g(x, dims=[0, 1]): return x.sum(dims[0]), len(dims)", "g(x)"),
    "names of the same kind elsewhere": ("KEPT = []", "KEPT = []; KEPT.append(1)"),
    "a cache of settings": (
        "@functools.lru_cache(maxsize=None)\ndef settings(n, dtype):\n    block = min(1024, triton.next_power_of_2(n))\n    warps = 4\n"
        "    if block >= 512:\n        warps = 8\n    return block, warps if dtype == torch.float32 else 4",
        "rows, n = x.shape; block, warps = settings(n, x.dtype); z = settings(x.size(0) * 2, dtype=torch.float16)",
    ),
    "a cache of the GPU's properties": (
        "def count(d): return torch.cuda.get_device_properties(d).multi_processor_count\n"
        "@functools.cache\ndef programs():\n    d = torch.cuda.current_device()\n    return 4 * count(d)",
        "y = programs()",
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
def test_constants_and_what_a_call_makes_are_fine(above, first):
    assert findings(above, first) == []
