from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelllm_runtime.source import source_hash
from pytest_kernelllm.discover.scan import scan

FILES = {
    "src/shop/__init__.py": "from .layers import Norm\n",
    "src/shop/layers.py": '''
        """Layers."""
        import functools
        import torch
        from pytest_kernelllm import triton_candidate as marking
        from torch import nn
        import shop.numbers as numbers
        from shop.math import power as squared, *
        from . import switches
        from .bases import Base

        WIDTH = 1024

        def make(batch=8):
            """Inputs."""
            return torch.randn(batch, WIDTH)

        def unrelated():
            return 1

        try:
            import fast_sum
        except ImportError:
            fast_sum = None

        if switches.EXACT:
            def mean(x): return x.mean(-1, keepdim=True)
        else:
            def mean(x): return x.sum(-1, keepdim=True) / x.shape[-1]

        width = 1
        width = 2
        SCALES = {}
        SCALES["one"] = 1.0

        @marking(inputs=make, init=(WIDTH,), dims={"batch": (1, 64)}, kernel="shop._triton.norm")
        class Norm(Base):
            """Root mean square."""

            def __init__(self, width):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(width))  # learned

            def forward(self, x):
                from .late import clip
                value = x * torch.rsqrt(mean(squared(x)) + numbers.EPSILON)
                return clip(value * self.weight) * SCALES["one"] * width
        '''.replace("power as squared, *", "power as squared\n        from shop.stars import *"),
    "src/shop/switches.py": "EXACT = True\nOTHER = 1\n",
    "src/shop/numbers.py": "EPSILON = 1e-6\nOTHER = 2\n",
    "src/shop/math/__init__.py": "from .powers import power\n",
    "src/shop/math/powers.py": "from . import deep\n\ndef power(x):\n    return deep.mul(x, x)\n",
    "src/shop/math/deep.py": "def mul(a, b):\n    return a * b\n\ndef add(a, b):\n    return a + b\n",
    "src/shop/bases.py": "from torch import nn\n\nclass Base(nn.Module):\n    eps = 1\n\nclass Other: ...\n",
    "src/shop/late.py": "from shop import layers\n\ndef clip(x):\n    return x.clamp(-LIMIT, LIMIT)\n\nLIMIT = 9\n",
    "src/shop/stars.py": "def starred():\n    return 1\n",
}

SAME = {
    "comment": ("layers.py", "# learned", "# a weight"),
    "docstring": ("layers.py", '"""Root mean square."""', '"""RMS."""'),
    "docstring of a helper": ("layers.py", '"""Inputs."""', '"""What forward takes."""'),
    "formatting": ("layers.py", "x * torch.rsqrt", "x  *  torch.rsqrt"),
    "blank lines": ("layers.py", "def unrelated", "\n\n\ndef unrelated"),
    "unrelated function": ("layers.py", "def unrelated", "def renamed"),
    "unrelated import": ("layers.py", "import functools", "import itertools"),
    "adoption": ("layers.py", ', kernel="shop._triton.norm"', ""),
    "order of options": ("layers.py", "inputs=make, init=(WIDTH,)", "init=(WIDTH,), inputs=make"),
    "marker alias": ("layers.py", "marking", "candidate"),
    "unread names elsewhere": ("numbers.py", "OTHER = 2", "OTHER = 3"),
    "sibling of a base": ("bases.py", "class Other", "class Another"),
    "sibling of a distant helper": ("math/deep.py", "a + b", "b + a"),
    "unused star": ("stars.py", "return 1", "return 2"),
}

OTHER = {
    "body": ("layers.py", "value * self.weight", "self.weight * value"),
    "base class": ("bases.py", "eps = 1", "eps = 2"),
    "constant of an imported module": ("numbers.py", "1e-6", "1e-5"),
    "helper three imports away": ("math/deep.py", "a * b", "b * a"),
    "re-export changed": ("math/__init__.py", "import power", "import deep as power"),
    "alias changed": ("layers.py", "power as squared", "deep as squared"),
    "option": ("layers.py", "(1, 64)", "(1, 65)"),
    "option added": ("layers.py", "init=(WIDTH,)", "init=(WIDTH,), backward=True"),
    "constant in the options": ("layers.py", "WIDTH = 1024", "WIDTH = 2048"),
    "inputs": ("layers.py", "torch.randn(batch", "torch.rand(batch"),
    "condition of a definition": ("layers.py", "switches.EXACT", "switches.OTHER"),
    "value of that condition": ("switches.py", "EXACT = True", "EXACT = False"),
    "other branch": ("layers.py", "x.sum(-1", "x.sum(1"),
    "name set again": ("layers.py", "SCALES = {}", "SCALES = {}\nSCALES = {1: 1}"),
    "order of assignments": ("layers.py", "width = 1\nwidth = 2", "width = 2\nwidth = 1"),
    "table changed": ("layers.py", '["one"] = 1.0', '["one"] = 2.0'),
    "import inside a function": ("late.py", "LIMIT = 9", "LIMIT = 8"),
    "method replaced from outside": ("layers.py", "SCALES = {}", "SCALES = {}\nBase.forward = mean"),
    "decorator": ("layers.py", "class Norm", "@functools.cache\nclass Norm"),
    "star that hides a builtin": ("stars.py", "def starred():", "def super():"),
}


def hash_of(root: Path) -> str:
    (target,) = scan([root], root).targets
    return target.source_hash


def edit(root: Path, name: str, old: str, new: str) -> None:
    path = root / "src" / "shop" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_hash_does_not_change(project, change):
    root = project.write_files(FILES)
    before = hash_of(root)
    edit(root, *change)
    assert hash_of(root) == before


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER)
def test_hash_changes(project, change):
    root = project.write_files(FILES)
    before = hash_of(root)
    edit(root, *change)
    assert hash_of(root) != before


def test_hash_does_not_depend_on_where_the_project_lies(project, tmp_path):
    root = project.write_files({f"one/{name}": text for name, text in FILES.items()})
    shutil.copytree(root / "one", root / "two")
    assert hash_of(root / "one") == hash_of(root / "two")


def test_call_on_an_installed_class_counts_its_version(project, monkeypatch):
    root = project.write(
        conftest="""
        from pytest_kernelllm import triton_candidate
        from transformers.models.llama.modeling_llama import LlamaRMSNorm
        triton_candidate(LlamaRMSNorm, init=(1024,))
        """
    )
    before = hash_of(root)
    source_hash.distribution.cache_clear()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "99.0")
    assert hash_of(root) != before
    source_hash.distribution.cache_clear()


def test_torch_counts_without_its_version():
    assert source_hash.distribution("torch") == "torch"
    assert source_hash.distribution("math") == "math"
    assert source_hash.distribution("_pytest").startswith("pytest==")
    assert source_hash.distribution("no_such_package") == "no_such_package"


def test_whole_module_passed_on_counts_entirely(project):
    files = {
        "table.py": "A = 1\n",
        "m.py": "import table\nfrom pytest_kernelllm import triton_candidate\n"
        "@triton_candidate\nclass M:\n    a = getattr(table, 'A')\n",
    }
    root = project.write_files(files)
    before = hash_of(root)
    (root / "table.py").write_text("A = 2\n")
    assert hash_of(root) != before


def test_swapped_aliases_change_the_hash(project):
    text = """
    from helpers import f as first, g as second
    from pytest_kernelllm import triton_candidate
    @triton_candidate
    class M:
        def forward(self, x): return first(x) - second(x)
    """
    root = project.write(m=text, helpers="def f(x): return x\ndef g(x): return 2 * x\n")
    before = hash_of(root)
    project.write(m=text.replace("f as first, g as second", "g as first, f as second"))
    assert hash_of(root) != before


def test_local_names_hide_those_of_the_module(project):
    text = """
    from pytest_kernelllm import triton_candidate
    def x(): return 1
    def y(): return 1
    @triton_candidate
    class M:
        def forward(self, x):
            y = x
            return [y for y in x], lambda x: x
    """
    root = project.write(m=text)
    before = hash_of(root)
    project.write(m=text.replace("return 1", "return 2"))
    assert hash_of(root) == before


def test_cycles_end(project):
    root = project.write(
        a="from b import *\nfrom b import f\nfrom pytest_kernelllm import triton_candidate\n"
        "@triton_candidate\nclass A:\n    g = f, missing, A2\nclass A2(A): ...\n",
        b="from a import *\nfrom a import f, A\n",
    )
    assert len(hash_of(root)) == 64


def test_kernelbench_hash_covers_the_inputs(project):
    text = "class Model: ...\nN = 3\ndef get_inputs(): return [N]\ndef get_init_inputs(): return []\n"
    root = project.write(m=text)
    first = scan([root], root, kernelbench=True).targets[0].source_hash
    project.write(m=text.replace("N = 3", "N = 4"))
    assert scan([root], root, kernelbench=True).targets[0].source_hash != first


SYNTAX = '''
from pytest_kernelllm import triton_candidate
@triton_candidate(dims={"n": (1, 2)})
class M(Base, metaclass=type):
    """Doc."""
    a: int = 0x10
    b = (1.5e300, -0.0, 1j, b"x\\xff", "é\\u200b", None, ..., True)
    async def f(self, a, /, b=1, *c: int, d, e=2, **f) -> None:
        """Doc."""
        async with a as b, c: yield
        return f"{a!r:>{b}} {c=} {{}}" "tail" if (n := a) else [*a, {**b, 1: 2}]
    def g(self):
        match self:
            case {"a": [1, *rest], **more} if rest: pass
            case M(a=1) | None: x = lambda *a: a
        try: del self.a
        except* ValueError as error: raise error from None
        else: self.a[1:2, ...] @= 3
        return {i: j for i, j in x if i if j}
'''


def test_every_python_gives_the_same_hash(project):
    root = project.write(m=SYNTAX)
    mine = hash_of(root)
    repository = Path(__file__).parents[2]
    code = (
        "from pathlib import Path; from pytest_kernelllm.discover.scan import scan\n"
        f"print(scan([Path({str(root)!r})], Path({str(root)!r})).targets[0].source_hash)"
    )
    tried = 0
    for python in other_pythons():
        out = subprocess.run([python, "-c", code], cwd=repository, capture_output=True, text=True, check=True)
        assert out.stdout.strip() == mine, python
        tried += 1
    if not tried:
        pytest.skip("no other Python >= 3.11 is installed")


def other_pythons() -> list[str]:
    """Interpreters that work and have another version than this one."""
    found = {}
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    pyenv = Path.home() / ".pyenv" / "versions"
    places = [
        *(shutil.which(f"python3.{n}") for n in range(11, 15)),
        *map(str, pyenv.glob("3.1[1-4]*/bin/python")),
    ]
    for python in filter(None, places):
        ask = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        out = subprocess.run(ask, capture_output=True, text=True)
        if out.returncode == 0 and out.stdout.strip() != here:
            found[out.stdout.strip()] = python
    return list(found.values())


def test_the_hash_is_the_same_from_every_root(tmp_path):
    from pytest_kernelllm.discover.scan import scan_file

    package = tmp_path / "repository" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "helpers.py").write_text("def double(x):\n    return 2 * x\n")
    file = package / "layers.py"
    file.write_text(
        "from pytest_kernelllm import triton_candidate\nfrom package.helpers import double\n\n"
        "@triton_candidate\nclass Layer:\n    def forward(self, x):\n        return double(x)\n"
    )
    hashes = {
        scan_file(file, root).targets[0].source_hash for root in (tmp_path, tmp_path / "repository", package)
    }
    assert len(hashes) == 1


def shop(root: Path) -> Path:
    return root / "src" / "shop"


def rename_package(root: Path) -> None:
    shop(root).rename(root / "src" / "store")
    for path in root.rglob("*.py"):
        path.write_text(path.read_text().replace("shop", "store"))


MOVES = {
    "its file": lambda root: shop(root).joinpath("layers.py").rename(shop(root) / "other.py"),
    "the package": rename_package,
    "the project's layout": lambda root: shop(root).rename(root / "shop"),
    "a helper": lambda root: (
        shop(root).joinpath("numbers.py").rename(shop(root) / "figures.py"),
        edit(root, "layers.py", "import shop.numbers as numbers", "import shop.figures as numbers"),
    ),
}


def test_the_order_of_options_does_not_count_wherever_they_come_from(project):
    text = "from one import f\nfrom two import g\nfrom pytest_kernelllm import triton_candidate\n@triton_candidate({})\nclass M: ...\n"
    root = project.write(m=text.format("inputs=f, init=g"), one="def f(): ...\n", two="def g(): ...\n")
    before = hash_of(root)
    project.write(m=text.format("init=g, inputs=f"))
    assert hash_of(root) == before


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_the_place_of_a_file_does_not_count(project, move):
    root = project.write_files(FILES)
    edit(root, "__init__.py", "from .layers import Norm\n", "")
    edit(root, "late.py", "from shop import layers\n", "")
    edit(root, "layers.py", "from .late import clip", "from shop.late import clip")
    before = hash_of(root)
    move(root)
    assert hash_of(root) == before


DIFFERENT = {
    "what its import finds": "from helpers import f\n@triton_candidate\nclass M:\n    a = f\n",
    "a compiled module beside it": "from ._C import f\n@triton_candidate\nclass M:\n    a = f\n",
    "a file beside it": "@triton_candidate\nclass M:\n    a = open(__file__ + '.txt')\n",
    "a file beside what it calls": "from helpers import g\n@triton_candidate\nclass M:\n    a = g\n",
    "what it imports when called": "@triton_candidate\nclass M:\n    def f(self):\n        from helpers import f\n        return f\n",
    "what it imports into itself": "@triton_candidate\nclass M:\n    from helpers import f\n",
}


@pytest.mark.parametrize("text", DIFFERENT.values(), ids=DIFFERENT)
def test_classes_of_equal_text_that_read_something_else_differ(project, text):
    text = f"from pytest_kernelllm import triton_candidate\n{text.replace('from helpers', 'from .helpers')}"
    here = "def g(): return __file__\n"
    project.write_files({"one/__init__.py": "", "one/m.py": text, "one/helpers.py": f"f = 1\n{here}"})
    root = project.write_files({"two/__init__.py": "", "two/m.py": text, "two/helpers.py": f"f = 2\n{here}"})
    one, two = scan([root], root).targets
    assert one.source_hash != two.source_hash


def test_classes_of_equal_text_have_a_hash_of_their_own_name(project):
    text = (
        "from pytest_kernelllm import triton_candidate\nclass A:\n    @triton_candidate\n    class M: ...\n"
    )
    root = project.write(m=text, n=text, o=text.replace("class A", "class B"))
    hashes = {target.id: target.source_hash for target in scan([root], root).targets}
    assert hashes["m.py::A.M"] == hashes["n.py::A.M"] != hashes["o.py::B.M"]
