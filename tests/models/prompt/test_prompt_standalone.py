"""What a prompt shows of a module: its own file, short definitions of others, signatures, inputs and arguments."""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_project import executed, target_of, written

from kernelllm_judge.target.live import load_target
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.models.prompt import LENGTHS, PromptError, standalone

PLAIN = """
@triton_candidate(inputs=rows)
class Scale(nn.Module):
    def forward(self, x):
        return {}
"""

LINEAR = """
@triton_candidate(inputs=rows, init={init})
class Block(nn.Module):
    def __init__(self, {parameters}):
        super().__init__()
        {body}
    def forward(self, x): return {result}
"""


@pytest.fixture(autouse=True)
def fresh_imports() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before
    for name in [name for name in sys.modules if name.startswith("project_")]:
        del sys.modules[name]


def scale(expression: str, before: str = "") -> str:
    """A target whose ``forward(self, x)`` returns that."""
    return before + PLAIN.format(expression)


def block(init: str, parameters: str, body: str, result: str, before: str = "") -> str:
    """A target with a constructor."""
    return before + LINEAR.format(init=init, parameters=parameters, body=body, result=result)


def shown(folder: Path, layers: str, others: dict[str, str] | None = None, longest: int = LENGTHS[0]) -> str:
    """The text for a target, which need not run."""
    live = target_of(folder, layers, others)
    return standalone(live, live.cases[0], longest)


def refusal(folder: Path, layers: str, others: dict[str, str] | None = None) -> str:
    live = target_of(folder, layers, others)
    with pytest.raises(PromptError) as caught:
        standalone(live, live.cases[0])
    text = str(caught.value)
    assert live.target.id.replace("::", ": ") in text
    assert text.endswith(".")
    assert "\n" not in text
    return text


def definitions(text: str) -> list[str]:
    return [n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]


# --------------------------------------------------------------------------- of its own file


OWN = {
    "defaults": (
        "outer(x)",
        "POWER = 2.0\ndef helper(x, power=None): return x ** (power or POWER)\n"
        "def outer(x, power=POWER, apply=helper): return apply(x, power)\n",
        "def outer(x, power=POWER, apply=helper)",
    ),
    "each needs the other": (
        "even(x, 4)",
        "def even(x, n): return x if n == 0 else odd(x * 2, n - 1)\ndef odd(x, n): return even(x + 1, n - 1)\n",
        "def odd(x, n)",
    ),
    "of two of one name the live one": (
        "Inner()(x)",
        "if torch.__version__:\n    class Inner(nn.Module):\n        def forward(self, x): return x * 2\n"
        "else:\n    class Inner(nn.Module):\n        def forward(self, x): return x * 3\n",
        "return x * 2",
    ),
    "imports are narrowed": (
        "squash(x) * math.pi + torch.utils.checkpoint.checkpoint(F.relu, x, use_reentrant=False)",
        "import math\nimport json, os\nfrom torch import Tensor, sigmoid as squash\nimport torch.utils.checkpoint\n",
        "from torch import sigmoid as squash",
    ),
    "aliases, lambdas, partials": (
        "alias(square(tanh_gelu(x)))",
        "from functools import partial\nalias = F.silu\nsquare = lambda x: x * x\n"
        "tanh_gelu = partial(F.gelu, approximate='tanh')\n",
        "square = lambda x: x * x",
    ),
    "factories and decorators": (
        "shift(triple(x))",
        "def make(gain):\n    def scaled(x):\n        return x * gain\n    return scaled\n"
        "triple = make(3)\n"
        "def twice(f):\n    def both(x):\n        return f(f(x))\n    return both\n"
        "@twice\ndef shift(x):\n    return x + 1\n",
        "@twice",
    ),
    "tables": (
        "TABLE['re' + 'lu'](x)",
        "def relu(x): return x.relu()\nTABLE = {}\nTABLE['relu'] = relu\n",
        "TABLE['relu'] = relu",
    ),
    "a name with a meaning in this form": (
        "Model()(get_inputs(x))",
        "class Model(nn.Module):\n    def forward(self, x): return x + 1\ndef get_inputs(x): return x * 2\n",
        "return Model_()(get_inputs_(x))",
    ),
    "a comprehension that binds a name": (
        "sum(y * k for k in range(3) if (y := x + k) is not None)",
        "",
        "y := ",
    ),
    "a global": (
        "count(x)",
        "COUNT = 0\ndef count(x):\n    global COUNT\n    COUNT += 1\n    return x\n",
        "COUNT = 0",
    ),
}


@pytest.mark.parametrize("case", OWN)
def test_what_a_class_uses_of_its_file_comes_along(tmp_path: Path, case: str) -> None:
    expression, before, part = OWN[case]
    text = written(tmp_path, scale(expression, before + "UNUSED = 3\ndef unused(x): return x\n"), head=HEAD_)
    assert part in text
    for left_out in ("UNUSED", "unused", "json", "import os", "triton_candidate", "pytest_kernelllm", "rows"):
        assert left_out not in text


HEAD_ = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from pytest_kernelllm import triton_candidate
def rows(n=4):
    return torch.randn(n, 8)
"""


def test_submodules_a_base_and_the_class_itself_in_its_own_code(tmp_path: Path) -> None:
    layers = """
    class Inner(nn.Module):
        def forward(self, x): return x.relu()
    class Base(nn.Module):
        def hook(self, x): return x + 1
        def never(self, x): return missing_name
    @triton_candidate(inputs=rows, init=(1,))
    class Outer(Base):
        def __init__(self, depth: int, kind: "Outer" = None):
            super(Outer, self).__init__()
            self.child = Outer(depth - 1) if depth else Inner()
        def forward(self, x: torch.Tensor) -> "torch.Tensor":
            return self.hook(self.child(x)) + isinstance(self.child, Outer)
    """
    text = written(tmp_path, layers)
    assert definitions(text)[:3] == ["Inner", "Base", "Model"]
    assert "Outer" not in text
    assert "never" not in text


def test_a_class_that_a_function_makes(tmp_path: Path) -> None:
    layers = """
    def make(gain):
        class Inner(nn.Module):
            def forward(self, x): return x * gain
        return Inner
    Scale = make(3.0)
    triton_candidate(Scale, inputs=rows)
    """
    assert "Model = make(3.0)" in shown(tmp_path, layers)


def test_a_forward_that_was_replaced_and_one_that_was_adopted(tmp_path: Path) -> None:
    replaced = scale("x + 1") + "def other(self, x): return x + 2\nScale.forward = other\n"
    assert "Model.forward = other" in written(tmp_path, replaced)
    adopted = scale("x + 1").replace("inputs=rows", 'inputs=rows, kernel="PACKAGE._triton.scale"')
    assert "return x + 1" in written(tmp_path, adopted)


def test_decorators_of_torch_and_of_the_standard_library_stay(tmp_path: Path) -> None:
    layers = """
    import functools
    @functools.lru_cache(maxsize=None)
    def table(n): return torch.arange(n)
    @triton_candidate(inputs=rows)
    class Scale(nn.Module):
        @property
        def gain(self): return 2
        @staticmethod
        def plus(x): return x + table(8)
        @torch.no_grad()
        def forward(self, x): return self.plus(x) * self.gain
    """
    text = written(tmp_path, layers)
    for decorator in ("@functools.lru_cache(maxsize=None)", "@property", "@staticmethod", "@torch.no_grad()"):
        assert decorator in text


def test_a_dataclass_and_an_enum(tmp_path: Path) -> None:
    layers = """
    import enum
    from dataclasses import dataclass
    class Kind(enum.Enum):
        ADD = 1
        MUL = 2
    @dataclass
    class Pair:
        a: "float"
        b: float = 2.0
        def sum(self): return self.a + self.b
    @triton_candidate(inputs=rows, init=(Kind.MUL,))
    class Scale(nn.Module):
        def __init__(self, kind):
            super().__init__()
            self.kind = kind
        def forward(self, x):
            return x * Pair(1.0).sum() if self.kind is Kind.MUL else x
    """
    assert "return [Kind.MUL]" in written(tmp_path, layers)


def test_methods_logging_docstrings_and_annotations_that_do_not_matter_are_left_out(tmp_path: Path) -> None:
    layers = """
    import functools
    import logging
    import warnings
    from typing import Optional
    import pytest_kernelllm as pk
    logger = logging.getLogger(__name__)
    mark = functools.partial(pk.triton_candidate, inputs=rows)
    class Cache: ...
    @pk.triton_candidate(inputs=rows)
    class Scale(nn.Module):
        '''A docstring.'''
        __constants__ = ["gain"]
        gain: float
        used_value = 8
        def __init__(self):
            super().__init__()
            self.gain = 2.0
            self.reset()
        def reset(self): self.gain = 3.0
        def extra_repr(self): return "nothing"
        def generate(self, x): return unknown_name(x)
        def helper(self, x): return x * self.used_value  # a comment
        def forward(self, x: torch.Tensor, cache: Optional[Cache] = None, size: Optional[int] = None) -> "Cache":
            y: Cache = x
            if x.shape[0] > 100:
                logger.warning("large")
                warnings.warn("larger")
            return getattr(self, "helper")(y) * self.gain
    """
    text = written(tmp_path, layers)
    for kept in ("def reset", "def helper", "warnings.warn('larger')", "size=None"):
        assert kept in text
    for left_out in (
        "generate",
        "extra_repr",
        "__constants__",
        "docstring",
        "comment",
        "logg",
        "Cache",
        "pk",
        "@",
    ):
        assert left_out not in text


# --------------------------------------------------------------------------- of other files


def test_short_definitions_of_another_file_come_along(tmp_path: Path) -> None:
    others = {
        "maths.py": """
            import math
            from .numbers_ import OFFSET
            UNUSED = 3
            def inner(x): return x * math.pi + OFFSET
            def outer(x):
                '''A docstring.'''
                return inner(x)
            class Base(nn.Module):
                def __init__(self):
                    super(Base, self).__init__()
                def hook(self, x): return x * 2
            """.replace("import math", "import math\n            from torch import nn"),
        "numbers_.py": "BASE = 2.0\nOFFSET = BASE + 1.0\n",
    }
    before = "from .maths import outer as apply, Base\n"
    text = written(
        tmp_path, scale("self.hook(apply(x))", before).replace("Scale(nn.Module)", "Scale(Base)"), others
    )
    assert definitions(text) == ["Base", "inner", "outer", "Model", "get_inputs", "get_init_inputs"]
    assert "OFFSET = 3.0\n" in text
    assert "apply = outer\n" in text
    assert "UNUSED" not in text
    assert "docstring" not in text


def test_of_a_module_that_is_used_as_an_object_the_signatures_are_shown(tmp_path: Path) -> None:
    others = {
        "ops.py": "import torch\ndef double(x, by=2):\n    return torch.mul(x, by)\ndef unused(x): return x\n"
    }
    text = shown(tmp_path, scale("ops.double(x)", "from PACKAGE import ops\n"), others)
    assert "class ops:\n" in text
    assert "def double(x, by=2):\n        ..." in text
    assert "unused" not in text


def test_of_two_of_one_name_the_second_is_shown_by_its_signature(tmp_path: Path) -> None:
    others = {
        "one.py": "def scale(x): return x * 2\ndef first(x): return scale(x)\n",
        "two.py": "def scale(x): return x * 3\ndef second(x, gain=2): return scale(x)\n",
    }
    before = "from .one import first\nfrom .two import second\n"
    text = shown(tmp_path, scale("first(x) + second(x)", before), others)
    assert "return x * 2" in text
    assert "def second(x, gain=2):\n    ..." in text
    assert "return x * 3" not in text


LONG = {
    "long.py": "import torch\nfrom torch import nn\n"
    + "def far(x, power: float = 2.0, apply=print):\n    '''A docstring.'''\n"
    + "    x = x * 1\n" * 70
    + "    return x\n"
    + "class Far(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
    + "    def forward(self, x, y=None):\n"
    + "        x = x * 1\n" * 70
    + "        return x\n    def unused(self): pass\n"
    + "TABLE = {'gelu': torch.nn.functional.gelu, 'far': far, 'near': nn.ReLU}\n"
}


def test_longer_definitions_are_shown_by_their_signatures_with_the_parts_of_the_module(
    tmp_path: Path,
) -> None:
    before = "from .long import far, Far, TABLE\n"
    layers = block(
        "('gelu',)", "act", "self.act, self.far = TABLE[act], Far(8)", "far(self.far(self.act(x)))", before
    )
    text = shown(tmp_path, layers, LONG)
    assert "def far(x, power=2.0, apply=...):\n    ..." in text
    assert (
        "class Far(torch.nn.Module):\n    def __init__(self, width):\n        ...\n    def forward(self, x, y=None):"
        in (text.replace("\n\n", "\n"))
    )
    assert "TABLE = {'gelu': torch.nn.functional.gelu, 'far': far}" in text
    assert "#   (far): Far()" in text
    assert text.count(".long:") == 2
    assert "# From builtins:" not in text
    for left_out in ("docstring", "x * 1", "unused", "near"):
        assert left_out not in text
    assert executed(text)["get_init_inputs"]() == ["gelu"]


def test_a_prompt_without_definitions_of_other_files_is_shorter(tmp_path: Path) -> None:
    others = {"maths.py": "def outer(x, y=1):\n    x = x + y\n    return x\n"}
    layers = scale("outer(x)", "from .maths import outer\n")
    best, shortest = (shown(tmp_path, layers, others, longest) for longest in LENGTHS)
    assert "x = x + y" in best
    assert "def outer(x, y=1):\n    ..." in shortest


@pytest.mark.parametrize(("wrapper", "library"), [("f(self, x)", True), ("f(self, x) * 2", False)])
def test_a_librarys_decorators_are_left_out_and_the_projects_stay(
    tmp_path: Path, wrapper: str, library: bool
) -> None:
    folder = "site-packages/" if library else ""
    others = {
        f"{folder}wrapping.py": f"""
            import functools
            def registered(name): return lambda cls: cls
            def wrapped(f):
                @functools.wraps(f)
                def inner(self, x):
                    return {wrapper}
                return inner
            """
    }
    layers = f"""
    import sys, pathlib
    sys.path.insert(0, str(pathlib.Path(__file__).parent / "{folder}"))
    sys.modules.pop("wrapping", None)
    from wrapping import registered, wrapped
    @registered("scale")
    @triton_candidate(inputs=rows)
    class Scale(nn.Module):
        @wrapped
        def forward(self, x): return x + 1
    """
    text = written(tmp_path, layers, others)
    assert ("@wrapped" in text) != library
    assert ("@registered('scale')" in text) != library


# --------------------------------------------------------------------------- inputs


def test_inputs_are_made_like_those_of_the_case(tmp_path: Path) -> None:
    layers = """
    def maker(width):
        def make(n=40):
            signs = torch.randint(2, (n, width)) * 2.0 - 1.0
            return torch.randn(n, width), torch.rand(n), signs, torch.randint(9, (n,)), torch.rand(n) > 0.5, 3, torch.full((n,), 7)
        return make
    @triton_candidate(inputs=maker(8), dims={"n": (1, 64)})
    class Scale(nn.Module):
        def forward(self, x, p, s, i, m, k, c): return x * k
    """
    text = written(tmp_path, layers)
    x, p, s, i, m, k, c = executed(text)["get_inputs"]()
    assert x.min() < 0 <= p.min() <= p.max() <= 1
    assert set(s.unique().tolist()) == {-1.0, 1.0}
    assert 0 <= i.min() <= i.max() < 9
    assert m.any()
    assert k == 3
    assert c.tolist() == [7] * 40


KEYWORDS = {
    "by name": (
        '{"mask": torch.rand(n, 8) > 0.5, "x": torch.randn(n, 8)}',
        "x, gain=2.0, *, unused=None, mask",
    ),
    "one left out": (
        '((torch.randn(n, 8),), {"mask": torch.randn(n, 8)})',
        "x, gain=2.0, mask=None, more=None",
    ),
    "in a tuple": ("(torch.randn(n, 8), (torch.randn(n, 8), 2))", "x, mask"),
}


@pytest.mark.parametrize("case", KEYWORDS)
def test_arguments_are_passed_by_position(tmp_path: Path, case: str) -> None:
    made, parameters = KEYWORDS[case]
    result = "x * mask[0] * mask[1]" if case == "in a tuple" else "x * gain * mask"
    layers = f"""
    @triton_candidate(inputs=lambda n=2: {made})
    class Scale(nn.Module):
        def forward(self, {parameters}): return {result}
    """
    text = written(tmp_path, layers)
    if case == "by name":
        assert "def forward(self, x, mask, gain=2.0, unused=None)" in text


def test_each_case_has_its_own_sizes_and_dtype(tmp_path: Path) -> None:
    layers = """
    def both(n=2):
        return torch.randn(n, 8), torch.randint(5, (n * 9,))
    @triton_candidate(inputs={"short": both, "long": lambda: both(9)}, dtypes=("float32", "bfloat16"))
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))
        def forward(self, x, index): return x * self.weight + index.sum()
    """
    live = target_of(tmp_path, layers)
    assert "torch.randn(2, 8)," in standalone(live, live.case("short-float32"))
    text = standalone(live, live.case("long-bfloat16"))
    assert "torch.randn(9, 8).to(torch.bfloat16)" in text
    assert "# Parameters have the dtype of the inputs: Model(*get_init_inputs()).to(torch.bfloat16)." in text


def test_training_mode_is_noted_if_it_matters(tmp_path: Path) -> None:
    layers = """
    @triton_candidate(inputs=rows, training=True)
    class Scale(nn.Module):
        def forward(self, x): return x + 1 if self.training else x
    """
    assert "# Called in training mode.\n" in shown(tmp_path, layers)
    assert "mode" not in written(tmp_path, scale("x + 1"))


def test_large_inputs_are_not_made_for_the_prompt(tmp_path: Path) -> None:
    layers = scale("x + 1").replace("inputs=rows", "inputs=lambda: (torch.randn(4097, 1025), torch.ones(3))")
    assert "torch.randn(4097, 1025)" in shown(tmp_path, layers.replace("self, x", "self, x, y"))


# --------------------------------------------------------------------------- the constructor


def test_a_configuration_is_flattened_to_what_is_read(tmp_path: Path) -> None:
    layers = """
    class Rope:
        base = 10.0
        other = 3
    class Config:
        def __init__(self):
            self.width, self.unread, self.act, self.rope, self.only_in_training = 8, "secret", F.silu, Rope(), 0.5
        @property
        def double(self): return 2 * self.hidden
        hidden = 16
    @triton_candidate(inputs=rows, init=lambda: (Config(),))
    class Block(nn.Module):
        def __init__(self, config: Config):
            super().__init__()
            self.config = config
            self.linear = nn.Linear(config.width, config.double)
            self.base = config.rope.base
            self.head = getattr(config, "head", None) or 1
        def forward(self, x):
            if self.training:
                return x * self.config.only_in_training
            return self.config.act(self.linear(x)) * self.base * self.head
    """
    text = written(tmp_path, layers)
    for kept in ("width=8", "double=32", "rope=types.SimpleNamespace(base=10.0)", "only_in_training=0.5"):
        assert kept in text
    for left_out in ("secret", "unread", "hidden", "class Config"):
        assert left_out not in text


VALUES = """
class Config(dict):
    pass
@triton_candidate(
    inputs=rows,
    init={"shape": torch.Size([8]), "dtype": torch.float32, "act": F.gelu, "kind": nn.LayerNorm, "low": -float("inf"),
          "names": {"a": [1, None], "b": (True,)}, "table": torch.tensor([1.0, 2.0]), "ids": {2, 1}, "config": Config(c=2)},
)
class Block(nn.Module):
    def __init__(self, shape, act, *, kind, dtype, low=0.0, names=(), table=None, ids=(), config=None):
        super().__init__()
        self.norm = kind(shape, dtype=dtype)
        self.act, self.low, self.gain = act, low, names["a"][0] + len(ids) + table.sum().item() + config["c"]
    def forward(self, x):
        return self.act(self.norm(x)).clamp(min=self.low) * self.gain
"""


def test_values_of_many_kinds(tmp_path: Path) -> None:
    text = written(tmp_path, VALUES)
    assert "nn.LayerNorm" in text
    assert "float('-inf')" in text


def test_any_number_of_constructor_arguments(tmp_path: Path) -> None:
    body = "self.linears = nn.Sequential(*(nn.Linear(a, b) for a, b in zip((first, *widths), widths)))"
    assert "return [8, 16, 8]" in written(
        tmp_path, block("(8, 16, 8)", "first, *widths", body, "self.linears(x)")
    )


def test_a_ready_module_is_shown_with_the_arguments_of_its_class(tmp_path: Path) -> None:
    layers = """
    def ready():
        torch.manual_seed(1)
        return Block(8, gain=3.0)
    @triton_candidate(inputs=rows, init=ready)
    class Block(nn.Module):
        def __init__(self, width, bias=True, gain=1.0):
            super().__init__()
            self.linear = nn.Linear(width, width, bias)
            self.gain = gain
        def forward(self, x): return self.linear(x) * self.gain
    """
    assert "return [8, True, 3.0]" in written(tmp_path, layers)


def test_what_cannot_be_written_is_left_open(tmp_path: Path) -> None:
    layers = block(
        "lambda: (nn.GELU('tanh'), nn.SiLU())",
        "act, more",
        "self.act, self.more = act, more",
        "self.more(self.act(x))",
    )
    assert "return [..., nn.SiLU()]" in shown(tmp_path, layers)


def test_a_file_in_kernelbenchs_form(tmp_path: Path) -> None:
    text = """
    import torch
    import torch.nn as nn
    class Model(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.linear = nn.Linear(width, width)
        def forward(self, x):
            return self.linear(x)
    batch, width = 4, 8
    def get_inputs():
        return [torch.rand(batch, width)]
    def get_init_inputs():
        return [width]
    """
    (tmp_path / "project_bench.py").write_text(textwrap.dedent(text))
    live = load_target(tmp_path, scan([tmp_path], tmp_path, kernelbench=True).targets[0])
    space = executed(standalone(live, live.cases[0]))
    assert space["get_init_inputs"]() == [8]
    assert space["Model"](8)(*space["get_inputs"]()).shape == (4, 8)


# --------------------------------------------------------------------------- refusals


def test_a_class_without_source_is_refused(tmp_path: Path) -> None:
    layers = """
    space = {'nn': nn, '__name__': 'project_nowhere'}
    exec('class Made(nn.Module):\\n    def forward(self, x): return x', space)
    Made = space['Made']
    triton_candidate(Made, inputs=rows)
    """
    assert "its class" in refusal(tmp_path, layers)


def test_a_constructor_with_loose_arguments_is_refused(tmp_path: Path) -> None:
    layers = block('{"width": 8}', "**options", 'self.width = options["width"]', "x * self.width")
    assert "its constructor takes values by **options" in refusal(tmp_path, layers)


LISTS = """
def levels(): return ([torch.rand(4, 8), (torch.randn(2, 8), 3)],)

@triton_candidate(inputs=levels)
class Last(nn.Module):
    def forward(self, x):
        return x[0].sum(0) * x[1][0] * x[1][1]
"""


def test_lists_among_the_inputs_are_written_as_lists(tmp_path) -> None:
    assert "[torch.rand(4, 8), (torch.randn(2, 8), 3" in written(tmp_path, LISTS)
