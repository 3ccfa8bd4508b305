"""Classes that mean something else have another hash, whatever changed what they read; and those that do not keep theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelllm_runtime.source.scan import scan

LAYERS = """
import torch, functools
from torch import nn
from kernelllm_runtime import triton_candidate
{before}
def scale(x): return x * 2
def half(x): return x / 2
TABLE = {{"f": scale}}
ITEMS = [1, 2]
WIDTH = 8
class Config:
    eps = 1e-6
    def reset(self): self.eps = 1
CONFIG = Config()
class Base(nn.Module):
    eps = 1e-6
    def plus(self, x): return x + 1
{middle}
@triton_candidate(inputs=lambda: torch.ones(1))
class Norm(Base):
    def forward(self, x): return self.plus(scale(x)) * CONFIG.eps + TABLE["f"](x) + len(ITEMS) + WIDTH + {read}
{after}
def unrelated(x): return x
class Unrelated(nn.Module):
    def forward(self, x): return x
"""

HELPERS = """
def scale(x): return x * 3
def half(x): return x / 3
def plus(self, x): return x + 2
def patch(thing, value=1): thing.eps = value
def register(table, key):
    def store(f):
        table[key] = f
        return f
    return store
OTHER = 3
"""


def project(
    before: str = "", middle: str = "", after: str = "", read: str = "0", **files: str
) -> dict[str, str]:
    """The files of a project with one marked class ``Norm``."""
    text = LAYERS.format(before=before, middle=middle, after=after, read=read)
    names = {f"shop/{name}.py": content for name, content in files.items()}
    return {"shop/__init__.py": "", "shop/layers.py": text, "shop/h.py": HELPERS} | names


def of(**one: str):
    """A pair: with these parts, and with those in which ``OLD`` is ``NEW``."""
    old, new = one.pop("old"), one.pop("new")
    changed = {key: value.replace(old, new) for key, value in one.items()}
    assert changed != one
    return project(**one), project(**changed)


def with_and_without(**parts: str):
    return project(), project(**parts)


STAR = {
    "a star after a definition": with_and_without(after="from .h import *"),
    "what it gives then": of(after="from .h import *", h=HELPERS, old="x * 3", new="x * 4"),
    "a star before a definition that may not run": of(
        before="from .h import *\nif torch.cuda.is_available():\n    def more(): return 1",
        read="more()",
        h="def more(): return 2\n",
        old="return 2",
        new="return 3",
    ),
    "the order of stars": of(
        before="from numpy import *\nfrom scipy import *",
        read="relu(x)",
        old="from numpy import *\nfrom scipy import *",
        new="from scipy import *\nfrom numpy import *",
    ),
    "the order of alternatives": of(
        before="try:\n    from numpy import exp\nexcept ImportError:\n    from scipy import exp",
        read="exp(x)",
        old="try:\n    from numpy import exp\nexcept ImportError:\n    from scipy import exp",
        new="try:\n    from scipy import exp\nexcept ImportError:\n    from numpy import exp",
    ),
    "an import before or after a definition": (
        project(after="from .h import scale"),
        project(before="from .h import scale"),
    ),
    "which branch defines": of(
        after="if FAST:\n    def more(): return 1\nelse:\n    pass",
        before="FAST = False",
        read="more()",
        old="if FAST:\n    def more(): return 1\nelse:\n    pass",
        new="if FAST:\n    pass\nelse:\n    def more(): return 1",
    ),
    "what decides which is imported": of(
        before="FAST = True\nif FAST:\n    from .h import half as other\nelse:\n    from .h import scale as other",
        read="other(x)",
        old="FAST = True",
        new="FAST = False",
    ),
    "which error decides": of(
        before="try:\n    limit = float('x')\nexcept ValueError:\n    limit = 1",
        read="limit",
        old="ValueError",
        new="TypeError",
    ),
    "which case matches": of(
        before="MODE = 1\nmatch MODE:\n    case 1: limit = 1\n    case _: limit = 2",
        read="limit",
        old="case 1",
        new="case 3",
    ),
}

ALIASES = {
    "another name": with_and_without(after="same = CONFIG\nsame.eps = 2"),
    "another name's value": of(after="same = CONFIG\nsame.eps = 2", old="= 2", new="= 3"),
    "another name of another name": with_and_without(after="a = ITEMS\nb = a\nb.append(1)"),
    "two names at once": with_and_without(after="a, b = CONFIG, ITEMS\nb += [3]"),
    "one part of a table": with_and_without(after='ALL = {"a": CONFIG}\nALL["a"].eps = 2'),
    "a loop": with_and_without(after="for each in (CONFIG, Base):\n    each.eps = 2"),
    "a comprehension": with_and_without(after="[setattr(each, 'eps', 2) for each in (CONFIG,)]"),
    "with": with_and_without(after="from contextlib import nullcontext\nwith nullcontext(CONFIG) as c:\n    c.eps = 2"),
    "a walrus": with_and_without(after="if (same := CONFIG):\n    same.eps = 2"),
    "a method": with_and_without(after="CONFIG.reset()"),
    "a builtin": with_and_without(after="setattr(CONFIG, 'eps', 2)"),
    "deleting": with_and_without(after="del ITEMS[0]"),
    "adding in place": with_and_without(after="ITEMS += [3]"),
    "an operator": with_and_without(after="ITEMS.__iadd__([3])"),
    "a function of the module": with_and_without(after="def change(): CONFIG.eps = 2\nchange()"),
    "what that function writes": of(
        after="def change(): CONFIG.eps = 2\nchange()", old="= 2", new="= 3"
    ),
    "a function that is given it": with_and_without(after="def change(c): c.eps = 2\nchange(CONFIG)"),
    "a function that calls one": with_and_without(
        after="def change(): CONFIG.eps = 2\ndef both(): change()\nLATE = both()"
    ),
    "a function with names of its own": with_and_without(after="def change():\n    c = CONFIG\n    c.eps = 2\nchange()"),
    "a global name": with_and_without(after="def change():\n    global WIDTH\n    WIDTH = 9\nchange()"),
    "an imported function": with_and_without(after="from .h import patch\npatch(CONFIG)"),
    "what it does": of(
        after="from .h import patch\npatch(CONFIG)", h=HELPERS, old="thing.eps = value", new="thing.eps = -value"
    ),
    "partial": with_and_without(
        after="from .h import patch\nearly = functools.partial(patch, CONFIG)\nearly(3)"
    ),
    "a decorator that keeps functions": with_and_without(
        middle="def keep(f):\n    TABLE['f'] = f\n    return f\n@keep\ndef new(x): return x"
    ),
    "what it keeps": of(
        middle="def keep(f):\n    TABLE['f'] = f\n    return f\n@keep\ndef new(x): return x",
        old="def new(x): return x",
        new="def new(x): return -x",
    ),
    "an imported decorator": of(
        middle="from .h import register\n@register(TABLE, 'f')\ndef new(x): return x",
        old="def new(x): return x",
        new="def new(x): return -x",
    ),
    "the body of a class": with_and_without(after="class Setup:\n    CONFIG.eps = 2"),
    "a subclass": with_and_without(
        before="KNOWN = []\nclass Keeper:\n    def __init_subclass__(cls): KNOWN.append(cls)",
        after="class One(Keeper): ...",
        read="len(KNOWN)",
    ),
    "one subclass more": of(
        before="KNOWN = []\nclass Keeper:\n    def __init_subclass__(cls): KNOWN.append(cls)",
        after="class One(Keeper): ...",
        read="len(KNOWN)",
        old="class One(Keeper): ...",
        new="class One(Keeper): ...\nclass Two(Keeper): ...",
    ),
    "a metaclass": of(
        before="KNOWN = []\nclass Meta(type):\n    def __init__(cls, *rest): KNOWN.append(cls)\nclass Keeper(metaclass=Meta): ...",
        after="class One(Keeper): ...",
        read="len(KNOWN)",
        old="class One(Keeper): ...",
        new="class One(Keeper): ...\nclass Two(Keeper): ...",
    ),
    "an instance that is made": with_and_without(
        before="SEEN = []\nclass Counter:\n    def __init__(self): SEEN.append(1)", after="c = Counter()", read="len(SEEN)"
    ),
    "globals": with_and_without(after="globals()['WIDTH'] = 9"),
    "the module itself": with_and_without(after="import sys\nsetattr(sys.modules[__name__], 'WIDTH', 9)"),
}  # fmt: skip

CLASSES = {
    "setattr": with_and_without(after="setattr(Norm, 'plus', half)"),
    "setattr on a base": with_and_without(after="setattr(Base, 'plus', half)"),
    "what setattr gives": of(after="setattr(Base, 'plus', half)", old="half)", new="scale)"),
    "another name of the class": with_and_without(after="N = Norm\nN.plus = half"),
    "a loop over names": with_and_without(
        after="for name in ('plus', 'minus'):\n    setattr(Base, name, half)"
    ),
    "a loop over classes": with_and_without(after="for cls in [Base, Config]:\n    cls.eps = 2"),
    "a function": with_and_without(after="def patch(cls): cls.plus = half\npatch(Norm)"),
    "an imported function": with_and_without(after="from .h import patch\npatch(Norm)"),
    "type.__setattr__": with_and_without(after="type.__setattr__(Base, 'eps', 2)"),
    "a table of methods": with_and_without(
        after="for n, f in {'plus': half}.items():\n    setattr(Norm, n, f)"
    ),
    "under a condition": of(
        before="FAST = True", after="if FAST:\n    Norm.plus = half", old="FAST = True", new="FAST = False"
    ),
    "a method of the class": with_and_without(
        middle="class Own(Base):\n    @classmethod\n    def change(cls): Base.eps = 2", after="Own.change()"
    ),
}

NESTED = "class Outer:\n    @triton_candidate\n    class Inner(nn.Module):\n        eps = 1\n"
CLASSES["a class inside another"] = tuple(
    {"m.py": f"from torch import nn\nfrom kernelllm_runtime import triton_candidate\n{NESTED}{change}\n"}
    for change in ("", "Outer.Inner.eps = 2")
)

ELSEWHERE = {
    "a value of a module that is passed on": of(
        before="from . import consts\nfrom . import patches", read="vars(consts)['A']", consts="A = 1\n",
        patches="from . import consts\nconsts.A = 2\n", old="A = 2", new="A = 3",
    ),
    "the package's own file": (project(), project() | {"shop/__init__.py": "from . import layers\nlayers.Norm.plus = 1\n"}),
    "a value in it": (
        project() | {"shop/__init__.py": "from .layers import Norm\nNorm.eps = 1\n"},
        project() | {"shop/__init__.py": "from .layers import Norm\nNorm.eps = 2\n"},
    ),
    "a constant": (project(), project() | {"shop/__init__.py": "import shop.layers\nshop.layers.WIDTH = 9\n"}),
    "a module that it imports": (
        project(after="from . import patches", patches="from . import layers\nlayers.scale = layers.half\n"),
        project(after="from . import patches", patches="from . import layers\n"),
    ),
    "a value of what it imports": of(
        before="from . import consts\nfrom . import patches", read="consts.A", consts="A = 1\n",
        patches="from . import consts\nconsts.A = 2\n", old="A = 2", new="A = 3",
    ),
    "setattr on a module": of(
        before="from . import consts\nfrom . import patches", read="consts.A", consts="A = 1\n",
        patches="from . import consts\nsetattr(consts, 'A', 2)\n", old="'A', 2", new="'A', 3",
    ),
    "another name elsewhere": of(
        before="from . import patches", patches="from .h import OTHER\ndef go():\n    from . import layers\n"
        "    c = layers.CONFIG\n    c.eps = 2\ngo()\n", old="eps = 2", new="eps = 3",
    ),
    "two modules away": of(
        before="from . import one", one="from . import two\n", two="from .layers import Base\nBase.eps = 2\n",
        old="eps = 2", new="eps = 3",
    ),
    "a function called from elsewhere": of(
        before="from . import one", one="from . import two\ntwo.go()\n",
        two="def go():\n    from .layers import Base\n    Base.eps = 2\n", old="eps = 2", new="eps = 3",
    ),
    "a name that a star brought": of(
        before="from . import one", one="from .layers import *\nBase.eps = 2\n", old="eps = 2", new="eps = 3",
    ),
}  # fmt: skip


def moved(text: str, of_helper: bool = False) -> tuple[dict[str, str], dict[str, str]]:
    """The same class, in ``shop/layers.py`` and in ``shop/other.py``; or what it calls, in a file and in another one."""
    before = project(
        read=text,
        before="import sys, inspect, logging\nlog = logging.getLogger(__name__)\nname = __name__\nfrom .one import f",
        one="def f(): return 1\n",
    )
    after = {key.replace("layers", "other"): value for key, value in before.items()}
    if of_helper:
        after = {
            key.replace("one", "two"): value.replace("from .one", "from .two")
            for key, value in before.items()
        }
    return before, after


PLACES = {
    "__name__": moved("len(__name__)"),
    "__package__ of a moved package": (
        project(read="len(__package__)"),
        {key.replace("shop", "store"): value for key, value in project(read="len(__package__)").items()},
    ),
    "__spec__": moved("len(__spec__.name)"),
    "__module__ of the class": moved("len(type(self).__module__)"),
    "__module__ of a function": moved("len(f.__module__)", of_helper=True),
    "its text": moved("len(getattr(f, '__module__'))", of_helper=True),
    "inspect.getfile": moved("len(inspect.getfile(type(self)))"),
    "inspect.getmodule": moved("len(inspect.getmodule(f).__name__)", of_helper=True),
    "a stored name": moved("len(name)", of_helper=False),
    "co_filename": moved("len(f.__code__.co_filename)", of_helper=True),
    "a frame": moved("len(sys._getframe().f_code.co_filename)"),
    "the name of a module": (
        project(before="from . import one as m", read="len(m.__name__)", one=""),
        project(before="from . import two as m", read="len(m.__name__)", two=""),
    ),
    "lines of a frame": of(
        read="sys._getframe().f_lineno", before="import sys\n", old="import sys\n", new="import sys\n\n\n"
    ),
    "lines of a function": of(
        read="scale.__code__.co_firstlineno",
        before="import sys\n",
        old="import sys\n",
        new="import sys\n\n\n",
    ),
    "source": of(
        read="len(inspect.getsource(scale))", before="import inspect", middle="# one", old="one", new="three"
    ),
    "a traceback": of(
        read="len(extract_stack())",
        before="from traceback import extract_stack",
        middle="# one",
        old="# one",
        new="# one\n# two",
    ),
}

SAME = {
    "a move of what changes it": (
        project(before="from . import patches", patches="from . import h\nh.x = 1\nfrom .layers import Base\nBase.eps = 2\n"),
        project(before="from . import apatch", apatch="from . import h\nh.x = 1\nfrom .layers import Base\nBase.eps = 2\n"),
    ),
    "a table of classes": of(
        after='ALL = {"norm": Norm, "other": Unrelated2}',
        middle="class Unrelated2: ...",
        old="class Unrelated2: ...",
        new="class Unrelated2:\n    a = 1",
    ),
    "a registry that nothing reads": of(
        middle="KNOWN = {}\ndef keep(c):\n    KNOWN[c.__name__] = c\n    return c\n@keep\nclass New: ...",
        old="class New: ...",
        new="class New:\n    a = 1",
    ),
    "a number that is computed from one": of(after="HALF = WIDTH // 2", old="// 2", new="// 4"),
    "a number that is passed on": of(after="print(WIDTH)\nfunctools.reduce(max, [WIDTH])", old="print", new="repr"),
    "a module made at import": of(after="made = Unrelated2()", middle="class Unrelated2:\n    a = 1", old="a = 1", new="a = 2"),
    "a logger": moved("len([log])"),
    "inspect.signature": moved("len(inspect.signature(f).parameters)"),
    "a function's name": moved("len(f.__name__)", of_helper=True),
    "if it is the program": of(after="if __name__ == '__main__':\n    Norm.eps = 3", old="3", new="4"),
    "another target's marker": of(
        after="def make(): return torch.ones(2)\n",
        middle="",
        read="0",
        old="torch.ones(2)",
        new="torch.ones(3)",
    ),
    "torch's functions at import": of(after="x = torch.randn(3)\ny = torch.relu(x)", old="randn", new="rand"),
    "another module that only reads": of(
        before="from . import patches", patches="from .layers import Norm\nclass More(Norm):\n    a = 1\n", old="a = 1", new="a = 2"
    ),
    "functions that nothing calls": of(after="def later(): CONFIG.eps = 2", old="= 2", new="= 3"),
}  # fmt: skip

TABLE = {
    f"{kind}: {name}": pair
    for kind, pairs in {
        "A imports": STAR, "B values": ALIASES, "C classes": CLASSES, "D elsewhere": ELSEWHERE, "E places": PLACES,
    }.items()
    for name, pair in pairs.items()
}  # fmt: skip


def hashes(tmp_path: Path, pair: tuple[dict[str, str], dict[str, str]]) -> list[str]:
    found = []
    for number, files in enumerate(pair):
        root = tmp_path / str(number)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        result = scan([root], root)
        assert not result.problems
        found += [target.source_hash for target in result.targets]
    assert len(found) == 2
    return found


@pytest.mark.parametrize("pair", TABLE.values(), ids=TABLE)
def test_another_meaning_has_another_hash(tmp_path, pair):
    one, two = hashes(tmp_path, pair)
    assert one != two


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME)
def test_what_is_unrelated_leaves_the_hash(tmp_path, pair):
    one, two = hashes(tmp_path, pair)
    assert one == two
