"""Ways in which a module keeps a value, how its ``forward`` reads it, and how another value gets there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Python text with ``N`` for a number that makes names unique, ``OLD`` and ``NEW`` for two numbers.

    ``change`` runs with ``m``, the module, and ``ns``, the module's file.
    """

    init: str
    """Statements of ``__init__``."""
    read: str
    """An expression in ``forward``, a number or a scalar tensor."""
    change: str
    top: str = ""
    """Statements before the class."""
    body: str = ""
    """Statements in the class."""

    def numbered(self, number: int, old: float, new: float) -> Kind:
        texts = (self.init, self.read, self.change, self.top, self.body)
        values = (("OLD", repr(old)), ("NEW", repr(new)), ("N", str(number)))
        filled = []
        for text in texts:
            for name, value in values:
                text = text.replace(name, value) if name != "N" else text.replace("_N", f"_{value}")
            filled.append(text)
        return Kind(*filled)


KINDS = {
    "function that a star may replace": Kind(
        "", "h_N()", "ns.h_N = lambda: NEW", "def h_N(): return OLD\nfrom other import *"
    ),
    "function that is replaced on a condition": Kind(
        "",
        "h_N()",
        "ns.h_N = ns.g_N",
        "import sys\ndef h_N(): return OLD\ndef g_N(): return NEW\n"
        "if math.tau < 1: setattr(sys.modules[__name__], 'h_N', g_N)",
    ),
    "method that is replaced on a condition": Kind(
        "self.p_N = P_N()",
        "self.p_N.read()",
        "ns.P_N.read = ns.g_N",
        "class P_N:\n    def read(self): return OLD\ndef g_N(self): return NEW\n"
        "def patch_N(cls): cls.read = g_N\nif math.tau < 1: patch_N(P_N)",
    ),
    "method of the class that is replaced on a condition": Kind(
        "",
        "self.read_N()",
        "type(m).read_N = ns.g_N",
        "class B_N(Base):\n    def read_N(self): return OLD\nBase = B_N\ndef g_N(self): return NEW\n"
        "if math.tau < 1: setattr(B_N, 'read_N', g_N)",
    ),
    "scalar": Kind("self.a_N = OLD", "self.a_N", "m.a_N = NEW"),
    "private scalar": Kind("self._a_N = OLD", "self._a_N", "m._a_N = NEW"),
    "private, by getattr": Kind("self._a_N = OLD", "getattr(self, '_a_N')", "m._a_N = NEW"),
    "computed getattr": Kind("self._a_N = OLD", "getattr(self, '_'.join(['', 'a_N']))", "m._a_N = NEW"),
    "vars": Kind(
        "self._a_N = OLD", "sum(v for k, v in vars(self).items() if k[1:] == 'a_N')", "m._a_N = NEW"
    ),
    "__dict__": Kind("self._a_N = OLD", "self.__dict__['_'.join(['', 'a_N'])]", "m._a_N = NEW"),
    "attrgetter": Kind("self._a_N = OLD", "operator.attrgetter('_a_N')(self)", "m._a_N = NEW"),
    "missing": Kind("", "getattr(self, '_a_N', OLD)", "m._a_N = NEW"),
    "missing, by hasattr": Kind("", "(NEW if hasattr(self, 'a_N') else OLD)", "m.a_N = 1"),
    "missing, by try": Kind(
        "",
        "self.read_N()",
        "m.a_N = NEW",
        body="def read_N(self):\n    try:\n        return self.a_N\n    except AttributeError:\n        return OLD",
    ),
    "string": Kind("self.a_N = 'OLD'", "float(self.a_N)", "m.a_N = 'NEW'"),
    "bytes": Kind("self.a_N = b'OLD'", "float(self.a_N)", "m.a_N = b'NEW'"),
    "complex": Kind("self.a_N = complex(OLD)", "self.a_N.real", "m.a_N = complex(NEW)"),
    "infinite": Kind("self.a_N = float('inf')", "min(OLD, self.a_N)", "m.a_N = -float('inf')"),
    "Fraction": Kind(
        "self.a_N = fractions.Fraction(OLD)", "float(self.a_N)", "m.a_N = fractions.Fraction(NEW)"
    ),
    "dict": Kind("self.a_N = {'x': OLD}", "self.a_N['x']", "m.a_N['x'] = NEW"),
    "dict replaced": Kind("self.a_N = {'x': OLD}", "self.a_N['x']", "m.a_N = {'x': NEW}"),
    "nested dict": Kind(
        "self.a_N = {'x': [1, {2: (OLD,)}]}", "self.a_N['x'][1][2][0]", "m.a_N['x'][1][2] = (NEW,)"
    ),
    "dict, a further key": Kind("self.a_N = {}", "self.a_N.get('x', OLD)", "m.a_N['x'] = NEW"),
    "dict, in order": Kind(
        "self.a_N = {'x': OLD, 'y': NEW}", "[*self.a_N.values()][0]", "m.a_N['x'] = m.a_N.pop('x')"
    ),
    "dict of functions": Kind(
        "self.a_N = {'x': functools.partial(torch.mul, other=OLD)}",
        "self.a_N['x'](torch.ones(()))",
        "m.a_N['x'] = functools.partial(torch.mul, other=NEW)",
    ),
    "set": Kind("self.a_N = {OLD}", "sum(self.a_N)", "m.a_N.add(NEW)"),
    "frozenset": Kind("self.a_N = frozenset({OLD})", "sum(self.a_N)", "m.a_N = frozenset({NEW})"),
    "tuple": Kind("self.a_N = (1, OLD)", "self.a_N[1]", "m.a_N = (1, NEW)"),
    "nested tuple": Kind("self.a_N = ((1, (OLD,)),)", "self.a_N[0][1][0]", "m.a_N = ((1, (NEW,)),)"),
    "tuple, longer": Kind("self.a_N = (OLD, OLD)", "sum(self.a_N)", "m.a_N = (OLD, OLD, NEW)"),
    "list": Kind("self.a_N = [OLD]", "self.a_N[0]", "m.a_N[0] = NEW"),
    "list, longer": Kind("self.a_N = [1, OLD]", "sum(self.a_N)", "m.a_N.append(NEW)"),
    "long list": Kind("self.a_N = [0.0] * 20 + [OLD]", "self.a_N[20]", "m.a_N[20] = NEW"),
    "nested list": Kind("self.a_N = [[1], [[OLD]]]", "self.a_N[1][0][0]", "m.a_N[1][0][0] = NEW"),
    "list or tuple": Kind("self.a_N = [1]", "(OLD if isinstance(self.a_N, list) else NEW)", "m.a_N = (1,)"),
    "bool or int": Kind("self.a_N = [True]", "(OLD if self.a_N[0] is True else NEW)", "m.a_N = [1]"),
    "deque": Kind("self.a_N = collections.deque([OLD])", "self.a_N[0]", "m.a_N[0] = NEW"),
    "named tuple": Kind(
        "self.a_N = P_N(OLD)", "self.a_N.x", "m.a_N = ns.P_N(NEW)", "P_N = collections.namedtuple('P_N', 'x')"
    ),
    "dict subclass": Kind(
        "self.a_N = D_N(x=1)\nself.a_N.scale = OLD",
        "self.a_N.scale",
        "m.a_N.scale = NEW",
        "class D_N(dict):\n    pass",
    ),
    "float subclass": Kind(
        "self.a_N = D_N(1.0)\nself.a_N.unit = OLD",
        "self.a_N.unit",
        "m.a_N.unit = NEW",
        "class D_N(float):\n    pass",
    ),
    "read-only mapping": Kind(
        "self._a_N = {'x': OLD}\nself.a_N = types.MappingProxyType(self._a_N)",
        "self.a_N['x']",
        "m._a_N['x'] = NEW",
    ),
    "namespace": Kind("self.c_N = types.SimpleNamespace(a_N=OLD)", "self.c_N.a_N", "m.c_N.a_N = NEW"),
    "alias of a namespace": Kind(
        "self.c_N = types.SimpleNamespace(a_N=OLD)", "(lambda c: c.a_N)(self.c_N)", "m.c_N.a_N = NEW"
    ),
    "namespace replaced": Kind(
        "self.c_N = types.SimpleNamespace(a_N=OLD)", "self.c_N.a_N", "m.c_N = types.SimpleNamespace(a_N=NEW)"
    ),
    "nested namespace": Kind(
        "self.c_N = types.SimpleNamespace(d_N=types.SimpleNamespace(_a_N={1: OLD}))",
        "self.c_N.d_N._a_N[1]",
        "m.c_N.d_N._a_N[1] = NEW",
    ),
    "namespace passed on": Kind(
        "self.c_N = types.SimpleNamespace(a_N=OLD)",
        "use_N(self.c_N)",
        "m.c_N.a_N = NEW",
        "def use_N(c):\n    return c.a_N",
    ),
    "dataclass": Kind(
        "self.c_N = C_N(OLD)",
        "self.c_N.a_N",
        "m.c_N = ns.C_N(NEW)",
        "@dataclasses.dataclass\nclass C_N:\n    a_N: float = 1.0",
    ),
    "frozen dataclass, compared": Kind(
        "self.c_N = C_N(OLD)",
        "(OLD if self.c_N == C_N(OLD) else NEW)",
        "m.c_N = ns.C_N(NEW)",
        "@dataclasses.dataclass(frozen=True)\nclass C_N:\n    a_N: float = 1.0",
    ),
    "dataclass as a whole": Kind(
        "self.c_N = C_N(OLD)",
        "sum(dataclasses.astuple(self.c_N))",
        "m.c_N.a_N = NEW",
        "@dataclasses.dataclass\nclass C_N:\n    a_N: float = 1.0",
    ),
    "slots": Kind(
        "self.c_N = C_N()\nself.c_N.a_N = OLD",
        "self.c_N.a_N",
        "m.c_N.a_N = NEW",
        "class C_N:\n    __slots__ = ('a_N',)",
    ),
    "slots of the module": Kind("self.a_N = OLD", "self.a_N", "m.a_N = NEW", body="__slots__ = ('a_N',)"),
    "object with a method": Kind(
        "self.c_N = C_N()",
        "self.c_N.value_N()",
        "m.c_N._a_N = NEW",
        "class C_N:\n    def __init__(self):\n        self._a_N = OLD\n    def value_N(self):\n        return self._a_N",
    ),
    "object that is called": Kind(
        "self.c_N = C_N()",
        "self.c_N()",
        "m.c_N._a_N = NEW",
        "class C_N:\n    def __init__(self):\n        self._a_N = OLD\n    def __call__(self):\n        return self._a_N",
    ),
    "object that is a number": Kind(
        "self.c_N = C_N()",
        "float(self.c_N)",
        "m.c_N._a_N = NEW",
        "class C_N:\n    def __init__(self):\n        self._a_N = OLD\n    def __float__(self):\n        return self._a_N",
    ),
    "object that computes attributes": Kind(
        "self.c_N = C_N()",
        "self.c_N.anything",
        "m.c_N._a_N = NEW",
        "class C_N:\n    def __init__(self):\n        self._a_N = OLD\n    def __getattr__(self, name):\n"
        "        if name.startswith('__'):\n            raise AttributeError(name)\n        return self._a_N",
    ),
    "object of another class": Kind(
        "self.c_N = C_N()",
        "self.c_N.a_N",
        "m.c_N = ns.D_N()",
        "class C_N:\n    a_N = OLD\nclass D_N:\n    a_N = NEW",
    ),
    "object in a list": Kind(
        "self.c_N = [types.SimpleNamespace(a_N=OLD)]", "self.c_N[0].a_N", "m.c_N[0].a_N = NEW"
    ),
    "enum": Kind(
        "self.a_N = E_N.X",
        "self.a_N.value",
        "m.a_N = ns.E_N.Y",
        "class E_N(enum.Enum):\n    X = OLD\n    Y = NEW",
    ),
    "enum by name": Kind(
        "self.a_N = 'X'",
        "E_N[self.a_N].value",
        "ns.E_N._member_map_['X'] = ns.E_N.Y",
        "class E_N(enum.Enum):\n    X = OLD\n    Y = NEW",
    ),
    "enum by value": Kind(
        "self.a_N = OLD",
        "E_N(self.a_N).value",
        "ns.E_N._value2member_map_[OLD] = ns.E_N.Y",
        "class E_N(enum.Enum):\n    X = OLD\n    Y = NEW",
    ),
    "enum's names": Kind(
        "",
        "E_N[E_N._member_names_[0]].value",
        "ns.E_N._member_names_.reverse()",
        "class E_N(enum.Enum):\n    X = OLD\n    Y = NEW",
    ),
    "enum's missing value": Kind(
        "self.a_N = 'z'",
        "E_N(self.a_N).value",
        "ns.B_N['z'] = NEW",
        "B_N = {'z': OLD}\nclass E_N(enum.Enum):\n    X = OLD\n    Y = NEW\n    @classmethod\n    def _missing_(cls, value):\n"
        "        return cls(B_N[value])",
    ),
    "enum's value in a list": Kind(
        "self.a_N = [E_N.X]",
        "self.a_N[0].value[0]",
        "ns.E_N.X.value[0] = NEW",
        "class E_N(enum.Enum):\n    X = [OLD]",
    ),
    "enum's value": Kind(
        "self.a_N = E_N.X",
        "self.a_N.value[0]",
        "ns.E_N.X.value[0] = NEW",
        "class E_N(enum.Enum):\n    X = [OLD]",
    ),
    "method of a class made by ABCMeta": Kind(
        "self.a_N = A_N()\nself._b_N = OLD",
        "(self.a_N.read(self) if x.sum() > 0 else 0.0) + self.a_N.read(self)",
        "m._b_N = NEW",
        "A_N = type(abc.ABC)('A_N', (), {'read': lambda self, m: m._b_N})",
    ),
    "enum's own property": Kind(
        "self.a_N = E_N.X",
        "self.a_N.half",
        "ns.B_N = 2 * NEW",
        "B_N = 2 * OLD\nclass E_N(enum.Enum):\n    X = 1\n    @property\n    def half(self):\n        return B_N / 2",
    ),
    "property": Kind(
        "self._a_N = OLD", "self.b_N", "m._a_N = NEW", body="@property\ndef b_N(self):\n    return self._a_N"
    ),
    "cached property": Kind(
        "self._a_N = {1: OLD}",
        "getattr(self, 'b_N')",
        "vars(m)['b_N'] = NEW",
        body="@functools.cached_property\ndef b_N(self):\n    return self._a_N[1]",
    ),
    "method": Kind(
        "self._a_N = [OLD]", "self.b_N()", "m._a_N[0] = NEW", body="def b_N(self):\n    return self._a_N[0]"
    ),
    "__getattr__ of the module": Kind(
        "self._a_N = {'z_N': OLD}",
        "self._get_N('z_N')",
        "m._a_N['z_N'] = NEW",
        body="def _get_N(self, name):\n    return self._a_N[name]",
    ),
    "function": Kind("self.a_N = torch.exp", "self.a_N(torch.tensor(OLD))", "m.a_N = torch.tanh"),
    "private function": Kind("self._a_N = torch.exp", "self._a_N(torch.tensor(OLD))", "m._a_N = torch.tanh"),
    "closure": Kind(
        "self.a_N = make_N(OLD)",
        "self.a_N()",
        "m.a_N = ns.make_N(NEW)",
        "def make_N(s):\n    return lambda: s",
    ),
    "closure over a list": Kind(
        "self._a_N = [OLD]\nself.a_N = make_N(self._a_N)",
        "self.a_N()",
        "m._a_N[0] = NEW",
        "def make_N(s):\n    return lambda: s[0]",
    ),
    "lambda": Kind("self.a_N = (lambda: OLD)", "self.a_N()", "m.a_N = (lambda: NEW)"),
    "lambda of the same constants": Kind(
        "self.a_N = (lambda a, b: a - b)", "self.a_N(OLD, NEW)", "m.a_N = (lambda a, b: b - a)"
    ),
    "partial": Kind(
        "self.a_N = functools.partial(float, OLD)", "self.a_N()", "m.a_N = functools.partial(float, NEW)"
    ),
    "bound method": Kind(
        "self._a_N = OLD\nself.a_N = self.b_N",
        "self.a_N()",
        "m.a_N = m.c_N",
        body="def b_N(self):\n    return OLD\ndef c_N(self):\n    return NEW",
    ),
    "bound method of another": Kind(
        "self.a_N = C_N(OLD).b_N",
        "self.a_N()",
        "m.a_N = ns.C_N(NEW).b_N",
        "class C_N:\n    def __init__(self, a):\n        self.k = a\n    def b_N(self):\n        return self.k",
    ),
    "method of a list": Kind(
        "self._l_N = [OLD]\nself.a_N = self._l_N.copy", "self.a_N()[0]", "m._l_N[0] = NEW"
    ),
    "function with an attribute": Kind(
        "self.a_N = f_N",
        "self.a_N()",
        "ns.f_N.scale = NEW",
        "def f_N():\n    return f_N.scale\nf_N.scale = OLD",
    ),
    "function that is cached": Kind(
        "self.c_N = [OLD]",
        "f_N() * self.c_N[0]",
        "m.c_N[0] = NEW",
        "@functools.lru_cache\ndef f_N():\n    return 2.0",
    ),
    "plain tensor": Kind("self.a_N = torch.tensor([OLD])", "self.a_N[0]", "m.a_N = torch.tensor([NEW])"),
    "plain tensor in place": Kind("self.a_N = torch.tensor([OLD])", "self.a_N[0]", "m.a_N.fill_(NEW)"),
    "tensor in a dict": Kind("self.a_N = {1: torch.tensor(OLD)}", "self.a_N[1]", "m.a_N[1].fill_(NEW)"),
    "tensor in a dict replaced": Kind(
        "self.a_N = {1: torch.tensor(OLD)}", "self.a_N[1]", "m.a_N[1] = torch.tensor(NEW)"
    ),
    "int buffer": Kind(
        "self.register_buffer('a_N', torch.tensor([0, 1]))",
        "torch.tensor([OLD, NEW])[self.a_N[0]]",
        "m.a_N.copy_(m.a_N.flip(0))",
    ),
    "bool buffer": Kind(
        "self.register_buffer('a_N', torch.tensor(True))",
        "torch.where(self.a_N, OLD, NEW)",
        "m.a_N = torch.tensor(False)",
    ),
    "int parameter": Kind(
        "self.a_N = nn.Parameter(torch.tensor(1), requires_grad=False)",
        "self.a_N * OLD",
        "m.a_N.data = torch.tensor(2)",
    ),
    "dtype": Kind(
        "self.a_N = torch.float64", "torch.tensor(OLD / 3, dtype=self.a_N).double()", "m.a_N = torch.float16"
    ),
    "numpy scalar": Kind("self.a_N = np.float64(OLD)", "float(self.a_N)", "m.a_N = np.float64(NEW)"),
    "numpy type": Kind(
        "self.a_N = np.float64(OLD / 3)", "float(np.float64(1) * self.a_N)", "m.a_N = np.float32(OLD / 3)"
    ),
    "numpy array": Kind("self.a_N = np.array([OLD])", "float(self.a_N[0])", "m.a_N[0] = NEW"),
    "class attribute": Kind("", "self.a_N", "type(m).a_N = NEW", body="a_N = OLD"),
    "class attribute by type()": Kind("", "type(self).a_N", "type(m).a_N = NEW", body="a_N = OLD"),
    "class attribute by __class__": Kind("", "self.__class__.a_N", "type(m).a_N = NEW", body="a_N = OLD"),
    "class attribute, private": Kind("", "type(self)._a_N[0]", "type(m)._a_N[0] = NEW", body="_a_N = [OLD]"),
    "class attribute by the class's name": Kind("", "Model.a_N", "type(m).a_N = NEW", body="a_N = OLD"),
    "class attribute hidden by the instance": Kind(
        "self.a_N = 1.0", "type(self).a_N", "type(m).a_N = NEW", body="a_N = OLD"
    ),
    "class attribute by a class method": Kind(
        "self.a_N = 1.0",
        "self.b_N()",
        "type(m).a_N = NEW",
        body="a_N = OLD\n@classmethod\ndef b_N(cls):\n    return cls.a_N",
    ),
    "class attribute of a base": Kind(
        "",
        "super().b_N()",
        "ns.Base_N.a_N = NEW",
        "class Base_N(Base):\n    a_N = OLD\n    def b_N(self):\n        return Base_N.a_N\nBase = Base_N",
    ),
    "global": Kind("", "G_N", "ns.G_N = NEW", "G_N = OLD"),
    "global dict": Kind("", "G_N['x'][0]", "ns.G_N['x'][0] = NEW", "G_N = {'x': [OLD]}"),
    "global tensor": Kind("", "G_N", "ns.G_N.fill_(NEW)", "G_N = torch.tensor(OLD)"),
    "global object": Kind("", "G_N.a_N", "ns.G_N.a_N = NEW", "G_N = types.SimpleNamespace(a_N=OLD)"),
    "global of a helper": Kind("", "help_N()", "ns.G_N = NEW", "G_N = OLD\ndef help_N():\n    return G_N"),
    "global of a helper's helper": Kind(
        "",
        "help_N()",
        "ns.G_N[0] = NEW",
        "G_N = [OLD]\ndef in_N():\n    return G_N[0]\ndef help_N():\n    return in_N()",
    ),
    "global of a method": Kind(
        "", "self.b_N()", "ns.G_N = NEW", "G_N = OLD", "def b_N(self):\n    return G_N"
    ),
    "global of a static method": Kind(
        "", "self.b_N()", "ns.G_N = NEW", "G_N = OLD", "@staticmethod\ndef b_N():\n    return G_N"
    ),
    "global of a property": Kind(
        "", "self.b_N", "ns.G_N = NEW", "G_N = OLD", "@property\ndef b_N(self):\n    return G_N"
    ),
    "global of a class": Kind(
        "", "C_N().b_N()", "ns.G_N = NEW", "G_N = OLD\nclass C_N:\n    def b_N(self):\n        return G_N"
    ),
    "global of an autograd function": Kind(
        "",
        "F_N(torch.ones(()))",
        "ns.G_N = NEW",
        "G_N = OLD\nclass Fn_N(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * G_N\n"
        "F_N = Fn_N.apply",
    ),
    "global of a decorated function": Kind(
        "", "help_N()", "ns.G_N = NEW", "G_N = OLD\n@torch.no_grad()\ndef help_N():\n    return G_N"
    ),
    "global of a cached function's caller": Kind(
        "", "help_N(G_N)", "ns.G_N = NEW", "G_N = OLD\n@functools.lru_cache\ndef help_N(g):\n    return g"
    ),
    "function chosen at import": Kind(
        "", "act_N(torch.tensor(OLD))", "ns.act_N = torch.tanh", "act_N = torch.exp if OLD else torch.tanh"
    ),
    "function defined twice": Kind(
        "",
        "act_N()",
        "ns.act_N = ns.other_N",
        "def act_N():\n    return NEW\nother_N = act_N\nif OLD:\n    def act_N():\n        return OLD",
    ),
    "class chosen at import": Kind(
        "",
        "C_N.a_N",
        "ns.C_N = ns.Y_N",
        "class X_N:\n    a_N = OLD\nclass Y_N:\n    a_N = NEW\nC_N = X_N if OLD else Y_N",
    ),
    "constant of a closure": Kind(
        "",
        "in_N()",
        "ns.cell_N(NEW)",
        "def out_N():\n    s = OLD\n    def read():\n        return s\n    def write(v):\n        nonlocal s\n        s = v\n"
        "    return read, write\nin_N, cell_N = out_N()",
    ),
    "default of a helper": Kind(
        "", "help_N()", "ns.help_N.__defaults__ = (NEW,)", "G_N = OLD\ndef help_N(s=G_N):\n    return s"
    ),
    "mutable default": Kind(
        "", "help_N()", "ns.help_N.__defaults__[0].append(NEW)", "def help_N(s=[OLD]):\n    return sum(s)"
    ),
    "keyword default": Kind(
        "",
        "help_N()",
        "ns.help_N.__kwdefaults__['s'] = NEW",
        "G_N = OLD\ndef help_N(*, s=G_N):\n    return s",
    ),
    "comprehension": Kind("self.a_N = [[OLD]]", "sum(v for w in self.a_N for v in w)", "m.a_N[0][0] = NEW"),
    "hidden module": Kind(
        "self.a_N = [nn.Linear(1, 1, bias=False).requires_grad_(False)]",
        "self.a_N[0](torch.ones(1))[0]",
        "m.a_N[0].weight.fill_(NEW)",
    ),
    "hidden module by name": Kind(
        "object.__setattr__(self, '_h_N', nn.Dropout(OLD / 100).eval())",
        "self._h_N.p",
        "m._h_N.p = NEW / 100",
    ),
    "hidden in an object": Kind(
        "self.a_N = types.SimpleNamespace(layer=nn.PReLU(init=OLD).requires_grad_(False))",
        "self.a_N.layer(-torch.ones(1))[0]",
        "m.a_N.layer.weight.fill_(NEW)",
    ),
    "child's dict": Kind(
        "self.k_N = K_N()",
        "self.k_N()",
        "m.k_N.c_N['x'] = NEW",
        "class K_N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.c_N = {'x': OLD}\n"
        "    def forward(self):\n        return self.c_N['x']",
    ),
    "child's private number": Kind(
        "self.k_N = K_N()",
        "self.k_N()",
        "m.k_N._c_N = NEW",
        "class K_N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self._c_N = OLD\n"
        "    def forward(self):\n        return self._c_N",
    ),
    "child's config": Kind(
        "self.k_N = K_N(types.SimpleNamespace(a_N=OLD))",
        "self.k_N()",
        "m.k_N.config.a_N = NEW",
        "class K_N(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n        self.config = config\n"
        "    def forward(self):\n        c = self.config\n        return c.a_N",
    ),
    "child's global": Kind(
        "self.k_N = K_N()",
        "self.k_N()",
        "ns.G_N = NEW",
        "G_N = OLD\nclass K_N(nn.Module):\n    def forward(self):\n        return G_N",
    ),
    "attribute of a stock layer": Kind(
        "self.k_N = nn.Identity()\nself.k_N.a_N = {1: OLD}", "self.k_N.a_N[1]", "m.k_N.a_N[1] = NEW"
    ),
    "class kept": Kind(
        "self.a_N = X_N",
        "self.a_N.v_N",
        "m.a_N = ns.Y_N",
        "class X_N:\n    v_N = OLD\nclass Y_N:\n    v_N = NEW",
    ),
    "file kept": Kind("import other\nother.v_N = OLD\nself.a_N = other", "self.a_N.v_N", "m.a_N.v_N = NEW"),
    "value of another file": Kind(
        "import other\nother.v_N = OLD", "other.v_N", "ns.other.v_N = NEW", "import other"
    ),
    "imported while it runs": Kind(
        "import other\nother.v_N = OLD",
        "self.b_N()",
        "ns.other.v_N = NEW",
        "import other",
        "def b_N(self):\n    from other import v_N\n    return v_N",
    ),
    "buffer by get_buffer": Kind(
        "self.register_buffer('a_N', torch.tensor([0, 1]))",
        "torch.tensor([OLD, NEW])[self.get_buffer('a_N')[0]]",
        "m.a_N.copy_(m.a_N.flip(0))",
    ),
    "buffer by buffers()": Kind(
        "self.register_buffer('a_N', torch.tensor(1))",
        "OLD * sum(b.item() for b in self.buffers() if b.ndim == 0)",
        "m.a_N.fill_(2)",
    ),
    "matched": Kind(
        "self.c_N = types.SimpleNamespace(a_N=OLD)",
        "self.b_N()",
        "m.c_N.a_N = NEW",
        body="def b_N(self):\n    match self.c_N:\n        case types.SimpleNamespace(a_N=value):\n            return value",
    ),
    "attribute of a method": Kind(
        "",
        "self.b_N()",
        "type(m).b_N.scale_N = NEW",
        body="def b_N(self):\n    return self.b_N.scale_N\nb_N.scale_N = OLD",
    ),
    "user dict": Kind("self.a_N = collections.UserDict(x=OLD)", "self.a_N['x']", "m.a_N['x'] = NEW"),
    "user dict's subclass": Kind(
        "self.a_N = D_N(x=OLD)",
        "self.a_N['x']",
        "m.a_N['x'] = NEW",
        "class D_N(collections.UserDict):\n    pass",
    ),
    "chain map": Kind(
        "self.a_N = collections.ChainMap({}, {'x': OLD})", "self.a_N['x']", "m.a_N.maps[1]['x'] = NEW"
    ),
    "distribution": Kind(
        "self.a_N = torch.distributions.Normal(0.0, OLD)",
        "self.a_N.variance",
        "m.a_N = torch.distributions.Normal(0.0, NEW)",
    ),
    "single dispatch": Kind(
        "",
        "f_N(1)",
        "ns.G_N = NEW",
        "G_N = OLD\n@functools.singledispatch\ndef f_N(x):\n    return 0.0\n@f_N.register\ndef g_N(x: int):\n    return G_N",
    ),
    "decorator of the user's": Kind(
        "",
        "f_N(1.0)",
        "ns.f_N = ns.times_N(NEW)(ns.f_N.__wrapped__)",
        "def times_N(s):\n    def decorated(f):\n        @functools.wraps(f)\n        def inner(x):\n            return s * f(x)\n"
        "        return inner\n    return decorated\n@times_N(OLD)\ndef f_N(x):\n    return x",
    ),
    "descriptor": Kind(
        "self._d_N = {1: OLD}",
        "self.d_N",
        "m._d_N[1] = NEW",
        "class D_N:\n    def __get__(self, owner, cls=None):\n        return self if owner is None else owner._d_N[1]",
        "d_N = D_N()",
    ),
    "decorated method": Kind(
        "", "self.b_N()", "ns.G_N = NEW", "G_N = OLD", "@torch.no_grad()\ndef b_N(self):\n    return G_N"
    ),
    "generator function": Kind("", "next(f_N())", "ns.G_N = NEW", "G_N = OLD\ndef f_N():\n    yield G_N"),
    "nested function": Kind(
        "self._a_N = OLD",
        "self.b_N()",
        "m._a_N = NEW",
        body="def b_N(self):\n    def inner():\n        return (lambda: self._a_N)()\n    return inner()",
    ),
    "walrus and star": Kind("self._a_N = [OLD]", "[*(v := self)._a_N][0]", "m._a_N = [NEW]"),
    "function from a registry": Kind(
        "self.name_N = 'x'",
        "REG_N[self.name_N]()",
        "ns.G_N = NEW",
        "REG_N = {}\nG_N = OLD\ndef register_N(f):\n    REG_N['x'] = f\n    return f\n@register_N\ndef any_N():\n    return G_N",
    ),
    "config read in a registry's function": Kind(
        "self.c_N = types.SimpleNamespace(a_N=OLD)",
        "REG_N['x'](self)",
        "m.c_N.a_N = NEW",
        "REG_N = {'x': lambda m: m.c_N.a_N}",
    ),
    "parent": Kind(
        "self.k_N = K_N(self)",
        "self.k_N()",
        "m._a_N = NEW",
        "class K_N(nn.Module):\n    def __init__(self, parent):\n        super().__init__()\n        self._parent = [parent]\n"
        "        parent._a_N = OLD\n    def forward(self):\n        return self._parent[0]._a_N",
    ),
    "signed zero": Kind("self.a_N = (0.0,)", "math.copysign(OLD, self.a_N[0])", "m.a_N = (-0.0,)"),
    "metaclass attribute": Kind(
        "",
        "type(self).a_N",
        "ns.M_N.a_N = NEW",
        "class M_N(type):\n    a_N = OLD\nclass B_N(nn.Module, metaclass=M_N):\n    pass\nBase = B_N",
    ),
    "metaclass property": Kind(
        "",
        "type(self).a_N",
        "ns.M_N.k_N = NEW",
        "class M_N(type):\n    k_N = OLD\n    @property\n    def a_N(cls): return cls.k_N\nclass B_N(nn.Module, metaclass=M_N):\n    pass\nBase = B_N",
    ),
    "attribute of a parameter": Kind(
        "self.p_N = nn.Parameter(torch.ones(1), requires_grad=False)\nself.p_N.scale = OLD",
        "self.p_N.scale",
        "m.p_N.scale = NEW",
    ),
    "missing attribute of a parameter": Kind(
        "self.p_N = nn.Parameter(torch.ones(1), requires_grad=False)",
        "getattr(self.p_N, 'scale', OLD)",
        "m.p_N.scale = NEW",
    ),
    "attribute of a buffer": Kind(
        "self.register_buffer('p_N', torch.ones(1))\nself.p_N.scale = OLD",
        "self.p_N.scale",
        "m.p_N.scale = NEW",
    ),
    "order of parameters": Kind(
        "self.a_N = nn.Parameter(torch.tensor(OLD), requires_grad=False)\nself.b_N = nn.Parameter(torch.tensor(NEW), requires_grad=False)",
        "[*self.parameters()][0]",
        "p = m._parameters.pop('a_N'); m._parameters['a_N'] = p",
    ),
    "order of children": Kind(
        "self.a_N = nn.Dropout(OLD/100)\nself.b_N = nn.Dropout(NEW/100)",
        "[*self.children()][0].p",
        "p = m._modules.pop('a_N'); m._modules['a_N'] = p",
    ),
    "order of child's parameters": Kind(
        "self.c_N = nn.Linear(1,1).requires_grad_(False)\nself.c_N.weight.fill_(OLD); self.c_N.bias.fill_(NEW)",
        "[*self.c_N.parameters()][0].sum()",
        "p = m.c_N._parameters.pop('weight'); m.c_N._parameters['weight'] = p",
    ),
    "order of parameter dict": Kind(
        "self.c_N = nn.ParameterDict({'a': nn.Parameter(torch.tensor(OLD)), 'b': nn.Parameter(torch.tensor(NEW))}).requires_grad_(False)",
        "[*self.c_N.values()][0]",
        "p = m.c_N.pop('a'); m.c_N['a'] = p",
    ),
    "order of attributes": Kind(
        "self.a_N = OLD\nself.b_N = NEW",
        "[v for k, v in vars(self).items() if k[1:] == '_N'][0]",
        "p = vars(m).pop('a_N'); m.a_N = p",
    ),
    "order of a namespace": Kind(
        "self.c_N = types.SimpleNamespace(a_N=OLD, b_N=NEW)",
        "[*vars(self.c_N).values()][0]",
        "p = vars(m.c_N).pop('a_N'); m.c_N.a_N = p",
    ),
    "gradients of a plain tensor": Kind(
        "self.p_N = torch.ones(1)", "(OLD if self.p_N.requires_grad else NEW)", "m.p_N.requires_grad_(True)"
    ),
    "name of a subclass": Kind(
        "",
        "(OLD if self.__class__.__name__ == 'Model' else NEW)",
        "m.__class__ = type('Sub', (type(m),), {})",
    ),
    "object made while it runs": Kind(
        "",
        "C_N().v",
        "ns.B_N['v'] = NEW",
        "B_N = {'v': OLD}\nclass C_N:\n    def __init__(self): self.v = B_N['v']",
    ),
    "default factory": Kind(
        "",
        "C_N().w",
        "ns.B_N['v'] = NEW",
        "B_N = {'v': OLD}\n@dataclasses.dataclass\nclass C_N:\n    w: float = dataclasses.field(default_factory=lambda: B_N['v'])",
    ),
    "exception value": Kind(
        "",
        "f_N()",
        "ns.B_N['v'] = NEW",
        "B_N = {'v': OLD}\nclass Ex_N(Exception):\n    def __init__(self): self.v = B_N['v']\ndef f_N():\n    try:\n        raise Ex_N\n    except Ex_N as e:\n        return e.v",
    ),
    "class made while it runs": Kind(
        "",
        "f_N()",
        "ns.B_N['v'] = NEW",
        "B_N = {'v': OLD}\nclass C_N:\n    def __init_subclass__(cls): cls.v = B_N['v']\ndef f_N():\n    class Q(C_N): pass\n    return Q.v",
    ),
    "format string": Kind("self._a_N = OLD", "float('{0._a_N}'.format(self))", "m._a_N = NEW"),
    "special name of a class": Kind(
        "", "self.__scale_N__", "type(m).__scale_N__ = NEW", body="__scale_N__ = OLD"
    ),
    "special name of a file": Kind(
        "import other\nother.__v_N__ = OLD", "other.__v_N__", "ns.other.__v_N__ = NEW", "import other"
    ),
    "config, by __getattr__": Kind(
        "self.cfg_N = {'sc_N': OLD}",
        "self.sc_N",
        "m.cfg_N['sc_N'] = NEW",
        body="def __getattr__(self, n):\n    try:\n        return super().__getattr__(n)\n    except AttributeError:\n        if n not in ('sc_N',):\n            raise\n        return self.cfg_N[n]",
    ),
}
