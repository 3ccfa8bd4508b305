"""What a module for a prompt pulls in, leaves out and refuses."""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small_project import executed, target_of, written

from kernelllm_judge.target.live import load_target
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.models.prompt import PromptError, origins, standalone

PLAIN = """
@triton_candidate(inputs=rows)
class Scale(nn.Module):
    def forward(self, x):
        return {}
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


# --------------------------------------------------------------------------- what is pulled in


def test_a_helper_from_a_sibling_module_comes_with_what_it_needs(tmp_path: Path) -> None:
    others = {
        "maths.py": """
            import math
            from .numbers_ import OFFSET
            UNUSED = 3
            def unused(x): return x
            def inner(x): return x * math.pi + OFFSET
            def outer(x):
                '''A docstring.'''
                return inner(x)  # a comment
            """,
        "numbers_.py": "BASE = 2.0\nOFFSET = BASE + 1.0\n",
    }
    text = written(tmp_path, scale("outer(x)", "from .maths import outer\n"), others)
    assert definitions(text) == ["inner", "outer", "Model", "get_inputs", "get_init_inputs"]
    assert "BASE = 2.0\nOFFSET = BASE + 1.0" in text
    for left_out in (
        "UNUSED",
        "unused",
        "docstring",
        "comment",
        "rows",
        "pytest_kernelllm",
        "triton_candidate",
        "import F",
    ):
        assert left_out not in text


def test_helpers_reached_through_a_module_object(tmp_path: Path) -> None:
    others = {"ops.py": "import torch\nGAIN = 2\ndef double(x):\n    return torch.mul(x, GAIN)\n"}
    text = written(tmp_path, scale("ops.double(x) * ops.GAIN", "from PACKAGE import ops\n"), others)
    assert "return double(x) * GAIN" in text


def test_a_base_class_in_another_module(tmp_path: Path) -> None:
    others = {
        "bases.py": """
            from torch import nn
            class Base(nn.Module):
                def __init__(self, width):
                    super(Base, self).__init__()
                    self.inner = nn.Linear(width, width)
                def hook(self, x): return x
                def never(self, x): return missing_name
                def forward(self, x): return self.hook(self.inner(x))
            """
    }
    layers = """
    from .bases import Base
    @triton_candidate(inputs=rows, init=(8,))
    class Child(Base):
        def hook(self, x):
            return super(Child, self).hook(x) + 1
    """
    text = written(tmp_path, layers, others)
    assert definitions(text)[:2] == ["Base", "Model"]
    assert "super(Model, self).hook(x)" in text
    assert "never" not in text


def test_submodules_and_the_class_itself_in_its_own_code(tmp_path: Path) -> None:
    layers = """
    class Inner(nn.Module):
        def forward(self, x): return x.relu()
    @triton_candidate(inputs=rows, init=(1,))
    class Outer(nn.Module):
        def __init__(self, depth: int, kind: "Outer" = None):
            super().__init__()
            self.child = Outer(depth - 1) if depth else Inner()
        def forward(self, x: torch.Tensor) -> "torch.Tensor":
            return self.child(x) + isinstance(self.child, Outer)
    """
    text = written(tmp_path, layers)
    assert definitions(text)[:2] == ["Inner", "Model"]
    assert "Outer" not in text


def test_two_helpers_of_the_same_name(tmp_path: Path) -> None:
    others = {
        "one.py": "def scale(x): return x * 2\ndef first(x): return scale(x)\n",
        "two.py": "def scale(x): return x * 3\ndef second(x): return scale(x)\n",
    }
    before = "from .one import first\nfrom .two import second\n"
    text = written(tmp_path, scale("first(x) + second(x)", before), others)
    assert {"scale", "scale_2"} <= set(definitions(text))


def test_names_with_a_meaning_in_the_module_are_given_up(tmp_path: Path) -> None:
    before = (
        "class Model(nn.Module):\n    def forward(self, x): return x + 1\ndef get_inputs(x): return x * 2\n"
    )
    text = written(tmp_path, scale("Model()(get_inputs(x))", before))
    assert set(definitions(text)) == {"get_inputs_2", "Model_2", "Model", "get_inputs", "get_init_inputs"}


def test_a_class_that_is_called_model_already(tmp_path: Path) -> None:
    assert "class Model(nn.Module)" in written(tmp_path, scale("x + 1").replace("Scale", "Model"))


def test_a_local_variable_does_not_hide_a_helper(tmp_path: Path) -> None:
    others = {"ops.py": "def gain(x): return x * 2\n"}
    layers = """
    from . import ops
    @triton_candidate(inputs=rows)
    class Scale(nn.Module):
        def forward(self, x):
            gain = 3
            return ops.gain(x) * gain
    """
    assert "gain_2(x) * gain" in written(tmp_path, layers, others)


def test_default_arguments_are_defined_first(tmp_path: Path) -> None:
    before = "def helper(x, power=None): return x ** (power or POWER)\nPOWER = 2.0\n"
    before += "def outer(x, power=POWER, apply=helper): return apply(x, power)\n"
    assert "def outer(x, power=POWER, apply=helper)" in written(tmp_path, scale("outer(x)", before))


def test_helpers_that_need_each_other(tmp_path: Path) -> None:
    before = "def even(x, n): return x if n == 0 else odd(x * 2, n - 1)\ndef odd(x, n): return even(x + 1, n - 1)\n"
    written(tmp_path, scale("even(x, 4)", before))


def test_what_a_definition_needs_at_once_comes_first_even_in_a_circle(tmp_path: Path) -> None:
    before = (
        "def helper(x, n): return Box().go(x, n - 1) if n else x\n"
        "class Box:\n    def go(self, x, n, then=helper): return then(x + 1, n)\n"
    )
    written(tmp_path, scale("helper(x, 3)", before))


def test_of_two_classes_of_one_name_the_live_one_is_taken(tmp_path: Path) -> None:
    inner = "class Inner(nn.Module):\n        def forward(self, x): return x * {}\n"
    before = f"if torch.__version__:\n    {inner.format(2)}else:\n    {inner.format(3)}"
    assert "return x * 2" in written(tmp_path, scale("Inner()(x)", before))


def test_imports_are_kept_as_written_and_narrowed(tmp_path: Path) -> None:
    before = "import math\nimport json, os\nfrom torch import Tensor, sigmoid as squash\nimport torch.utils.checkpoint\n"
    text = written(
        tmp_path,
        scale(
            "squash(x) * math.pi + torch.utils.checkpoint.checkpoint(F.relu, x, use_reentrant=False)", before
        ),
    )
    assert "from torch import sigmoid as squash" in text
    assert "import torch.utils.checkpoint\n" in text
    assert "json" not in text
    assert "import os" not in text


def test_imports_inside_functions(tmp_path: Path) -> None:
    others = {"late.py": "FACTOR = 2.5\ndef late(x): return x * FACTOR\n"}
    before = "def helper(x):\n    import math\n    from .late import late\n    return late(x) * math.e\n"
    text = written(tmp_path, scale("helper(x)", before), others)
    assert "late import" not in text
    assert "import math" in text


def test_aliases_lambdas_and_partials_at_module_level(tmp_path: Path) -> None:
    before = (
        "from functools import partial\nalias = F.silu\nsquare = lambda x: x * x\n"
        "tanh_gelu = partial(F.gelu, approximate='tanh')\n"
    )
    text = written(tmp_path, scale("alias(square(tanh_gelu(x)))", before))
    assert "F.silu(square(" in text


def test_functions_made_by_a_factory_or_a_decorator_of_the_project(tmp_path: Path) -> None:
    before = (
        "def make(gain):\n    def scaled(x):\n        return x * gain\n    return scaled\n"
        "triple = make(3)\n"
        "def twice(f):\n    def both(x):\n        return f(f(x))\n    return both\n"
        "@twice\ndef shift(x):\n    return x + 1\n"
    )
    text = written(tmp_path, scale("shift(triple(x))", before))
    assert "@twice" in text
    assert "triple = make(3)" in text


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


def test_a_dataclass_and_an_enum_are_pulled_in(tmp_path: Path) -> None:
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
    text = written(tmp_path, layers)
    assert "return [Kind.MUL]" in text


def test_a_table_is_narrowed_to_the_entries_that_are_read(tmp_path: Path) -> None:
    before = (
        "def relu(x): return x.relu()\ndef tanh(x): return x.tanh()\n"
        "TABLE = {'relu': relu, 'tanh': tanh, 'gelu': F.gelu}\n"
        "def pick(name): return TABLE.get(name, tanh)\n"
    )
    text = written(tmp_path, scale("TABLE['re' + 'lu'](x) + pick('gelu')(x)", before))
    assert "return relu(x) + pick('gelu')(x)" in text
    assert (
        "TABLE = {'relu': relu, 'gelu': F.gelu}" in text or "TABLE = {'gelu': F.gelu, 'relu': relu}" in text
    )


def test_a_table_that_is_walked_through_is_kept_whole(tmp_path: Path) -> None:
    before = "def relu(x): return x.relu()\nTABLE = {'relu': relu, 'gelu': F.gelu}\n"
    text = written(tmp_path, scale("sum(f(x) for f in TABLE.values())", before))
    assert "TABLE = {'relu': relu, 'gelu': F.gelu}" in text


def test_what_an_import_reads_of_a_table_is_kept(tmp_path: Path) -> None:
    before = (
        "TABLE = {'relu': nn.ReLU, 'gelu': nn.GELU}\n"
        "def pick(name): return TABLE[name]()\n"
        "act = pick('gelu')\n"
    )
    text = written(tmp_path, scale("pick('relu')(x) + act(x)", before))
    assert "'relu'" in text
    assert "'gelu'" in text


def test_a_table_that_only_a_large_input_could_show_is_kept_whole(tmp_path: Path) -> None:
    layers = """
    TABLE = {"relu": F.relu, "gelu": F.gelu}
    @triton_candidate(inputs=lambda: torch.randn(4097, 1025))
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.name = "gelu"
        def forward(self, x): return TABLE[self.name](x) * (1 if x.device.type == "meta" and float(x[0, 0]) else 2)
    """
    assert "TABLE = {'relu': F.relu, 'gelu': F.gelu}" in written(tmp_path, layers)


def test_what_a_large_input_shows_without_data(tmp_path: Path) -> None:
    layers = """
    TABLE = {"relu": F.relu, "gelu": F.gelu}
    @triton_candidate(inputs=lambda: torch.randn(4097, 1025))
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.name = "gelu"
        def forward(self, x): return TABLE[self.name](x)
    """
    assert "return F.gelu(x)" in written(tmp_path, layers)


@pytest.mark.parametrize(("wrapper", "stays"), [("f(self, x)", False), ("f(self, x) * 2", True)])
def test_a_librarys_decorator_goes_where_it_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapper: str, stays: bool
) -> None:
    others = {
        "library.py": f"""
            import functools
            def registered(name):
                return lambda cls: cls
            def wrapped(f):
                @functools.wraps(f)
                def inner(self, x):
                    return {wrapper}
                return inner
            """
    }
    layers = """
    from .library import registered, wrapped
    @registered("scale")
    @triton_candidate(inputs=rows)
    class Scale(nn.Module):
        @wrapped
        def forward(self, x): return x + 1
    """
    monkeypatch.setattr(
        origins, "is_library", lambda value: getattr(value, "__module__", "").endswith(".library")
    )
    text = written(tmp_path, layers, others)
    assert ("@wrapped" in text) == stays
    assert ("@registered('scale')" in text) == stays


# --------------------------------------------------------------------------- what is left out


def test_methods_that_nothing_reaches_are_left_out(tmp_path: Path) -> None:
    layers = """
    @triton_candidate(inputs=rows)
    class Scale(nn.Module):
        __constants__ = ["gain"]
        gain: float
        unused_value = 7
        used_value = 8
        def __init__(self):
            super().__init__()
            self.gain = 2.0
            self.reset()
        def reset(self): self.gain = 3.0
        def extra_repr(self): return "gain"
        def generate(self, x): return unknown_name(x)
        def helper(self, x): return x * self.used_value
        def forward(self, x): return getattr(self, "helper")(x) * self.gain
    """
    text = written(tmp_path, layers)
    assert "def reset" in text
    assert "def helper" in text
    for left_out in ("generate", "extra_repr", "__constants__", "unused_value"):
        assert left_out not in text


def test_methods_stay_where_attributes_are_looked_up_by_computed_names(tmp_path: Path) -> None:
    layers = """
    @triton_candidate(inputs=rows)
    class Scale(nn.Module):
        def step_one(self, x): return x * 2
        def forward(self, x): return getattr(self, "step" + "_one")(x)
    """
    assert "def step_one" in written(tmp_path, layers)


def test_logging_is_left_out_and_warnings_stay(tmp_path: Path) -> None:
    layers = """
    import logging
    import warnings
    logger = logging.getLogger(__name__)
    @triton_candidate(inputs=rows)
    class Scale(nn.Module):
        def forward(self, x):
            if x.shape[0] > 100:
                logger.warning("large")
            if x.shape[0] > 200:
                warnings.warn("larger")
            return x + 1
    """
    text = written(tmp_path, layers)
    assert "logg" not in text
    assert "warnings.warn('larger')" in text


def test_annotations_that_need_more_than_pytorch_are_dropped(tmp_path: Path) -> None:
    layers = """
    from typing import Optional
    class Cache: ...
    @triton_candidate(inputs=rows)
    class Scale(nn.Module):
        def forward(self, x: torch.Tensor, cache: Optional[Cache] = None, size: Optional[int] = None) -> "Cache":
            y: Cache = x
            return y + 1
    """
    text = written(tmp_path, layers)
    assert "Cache" not in text
    assert "size: Optional[int]=None" in text


def test_the_marker_leaves_no_trace_whatever_it_is_called(tmp_path: Path) -> None:
    layers = """
    import functools
    import pytest_kernelllm as pk
    mark = functools.partial(pk.triton_candidate, inputs=rows)
    @pk.triton_candidate(inputs=rows)
    class Scale(nn.Module):
        def forward(self, x): return x + 1
    """
    text = written(tmp_path, layers)
    assert "pk" not in text
    assert "@" not in text


# --------------------------------------------------------------------------- inputs


def test_sizes_are_written_into_the_inputs(tmp_path: Path) -> None:
    layers = """
    def many(batch=2, *, seq=3):
        '''Inputs.'''
        base = torch.arange(seq * 8).reshape(seq, 8)
        return base.repeat(batch, 1, 1) + torch.rand(batch, seq, 8)
    @triton_candidate(inputs=many, dims={"batch": (1, 4)})
    class Scale(nn.Module):
        def forward(self, x): return x + 1
    """
    text = written(tmp_path, layers)
    assert "torch.arange(3 * 8).reshape(3, 8)" in text
    assert "return [base.repeat(2, 1, 1) + torch.rand(2, 3, 8)]" in text


def test_sizes_that_the_callable_changes_are_assigned_first(tmp_path: Path) -> None:
    layers = """
    def many(n=2):
        n = n * 2
        return [torch.randn(n, 8)]
    @triton_candidate(inputs=many)
    class Scale(nn.Module):
        def forward(self, x): return x + 1
    """
    assert "n = 2\n    n = n * 2" in written(tmp_path, layers)


def test_a_callable_with_several_returns_is_called(tmp_path: Path) -> None:
    layers = """
    def many(n=2):
        if n > 100:
            return torch.zeros(n, 8)
        return torch.randn(n, 8)
    @triton_candidate(inputs=many, dims={"n": (1, 4)})
    class Scale(nn.Module):
        def forward(self, x): return x + 1
    """
    assert "return [many(n=2)]" in written(tmp_path, layers)


def test_keyword_arguments_become_positional_ones(tmp_path: Path) -> None:
    layers = """
    def named(n=2):
        return {"mask": torch.rand(n, 8) > 0.5, "x": torch.randn(n, 8)}
    @triton_candidate(inputs=named)
    class Scale(nn.Module):
        def forward(self, x, gain=2.0, *, unused=None, mask):
            return x * gain * mask
    """
    text = written(tmp_path, layers)
    assert "def forward(self, x, mask, gain=2.0, *, unused=None)" in text


def test_keyword_arguments_that_leave_one_out(tmp_path: Path) -> None:
    layers = """
    @triton_candidate(inputs=lambda n=2: ((torch.randn(n, 8),), {"shift": torch.randn(n, 8)}))
    class Scale(nn.Module):
        def forward(self, x, gain=2.0, shift=None, more=None):
            return x * gain + shift
    """
    assert "return [torch.randn(2, 8), 2.0, torch.randn(2, 8)]" in written(tmp_path, layers)


def test_half_precision_is_cast_and_noted(tmp_path: Path) -> None:
    layers = """
    def both(n=2):
        return torch.randn(n, 8), torch.randint(5, (n,)), torch.randn(n, 8, dtype=torch.bfloat16)
    @triton_candidate(inputs=both, dtypes=("bfloat16",))
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))
        def forward(self, x, index, y): return x * self.weight + index[:, None] + y
    """
    text = written(tmp_path, layers)
    assert text.count(".to(torch.bfloat16)") == 2  # one input, and the note
    assert "# Parameters have the dtype of the inputs: Model(*get_init_inputs()).to(torch.bfloat16)." in text
    assert "torch.randint(5, (2,))," in text


@pytest.mark.parametrize("returned", ["tuple(pair)", "(*pair,)", "pair"])
def test_inputs_that_are_not_written_one_by_one_are_cast_all_the_same(tmp_path: Path, returned: str) -> None:
    layers = f"""
    def both(n=2):
        pair = [torch.randn(n, 8), torch.randint(5, (n, 8))]
        return {returned}
    @triton_candidate(inputs=both, dtypes=("float16",))
    class Scale(nn.Module):
        def forward(self, x, y): return x + y
    """
    assert "is_floating_point()" in written(tmp_path, layers)


def test_inputs_without_source_are_made_alike(tmp_path: Path) -> None:
    layers = """
    def maker(width):
        def make(n=40):
            signs = torch.randint(2, (n, width)) * 2.0 - 1.0
            steps = torch.arange(width).repeat(n, 1)
            return torch.randn(n, width), torch.rand(n), signs, torch.randint(9, (n,)), torch.rand(n) > 0.5, 3, torch.full((n,), 7), steps
        return make
    @triton_candidate(inputs=maker(8), dims={"n": (1, 64)})
    class Scale(nn.Module):
        def forward(self, x, p, s, i, m, k, c, a): return x * k
    """
    live = target_of(tmp_path, layers)
    text = standalone(live, live.cases[0])
    x, p, s, i, m, k, c, a = executed(text)["get_inputs"]()
    assert x.shape == s.shape == a.shape == (40, 8)
    assert p.shape == i.shape == m.shape == c.shape == (40,)
    assert x.min() < 0 <= p.min() <= p.max() <= 1
    assert set(s.unique().tolist()) == {-1.0, 1.0}
    assert i.dtype == torch.int64
    assert 0 <= i.min() <= i.max() < 9
    assert m.dtype == torch.bool
    assert k == 3
    assert c.tolist() == [7] * 40
    assert torch.equal(a, torch.arange(8).repeat(40, 1))


def test_several_cases_have_their_own_inputs(tmp_path: Path) -> None:
    layers = """
    @triton_candidate(inputs={"short": lambda: torch.randn(1, 8), "long": lambda: torch.randn(9, 8)})
    class Scale(nn.Module):
        def forward(self, x): return x + 1
    """
    live = target_of(tmp_path, layers)
    assert "torch.randn(1, 8)" in standalone(live, live.case("short"))
    assert "torch.randn(9, 8)" in standalone(live, live.case("long"))


def test_training_mode_is_noted_if_it_matters(tmp_path: Path) -> None:
    layers = """
    @triton_candidate(inputs=rows, training=True)
    class Scale(nn.Module):
        def forward(self, x): return x + 1 if self.training else x
    """
    live = target_of(tmp_path, layers)
    assert "# Called in training mode.\n" in standalone(live, live.cases[0])
    assert "mode" not in written(tmp_path, scale("x + 1"))


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
    assert (
        "SimpleNamespace(width=8, double=32, rope=SimpleNamespace(base=10.0), act=F.silu, only_in_training=0.5)"
        in text
    )
    for left_out in ("secret", "unread", "hidden", "class Config"):
        assert left_out not in text


def test_values_of_many_kinds(tmp_path: Path) -> None:
    layers = """
    @triton_candidate(
        inputs=rows,
        init={"shape": torch.Size([8]), "dtype": torch.float32, "act": F.gelu, "kind": nn.LayerNorm, "low": -float("inf"),
              "names": {"a": [1, None], "b": (True,)}, "table": torch.tensor([1.0, 2.0]), "ids": {2, 1}},
    )
    class Block(nn.Module):
        def __init__(self, shape, act, *, kind, dtype, low=0.0, names=(), table=None, ids=()):
            super().__init__()
            self.norm = kind(shape, dtype=dtype)
            self.act, self.low, self.gain = act, low, names["a"][0] + len(ids) + table.sum().item()
        def forward(self, x):
            return self.act(self.norm(x)).clamp(min=self.low) * self.gain
    """
    text = written(tmp_path, layers)
    assert "nn.LayerNorm" in text
    assert "float('-inf')" in text


def test_a_ready_module_is_made_again_from_its_arguments(tmp_path: Path) -> None:
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


def test_a_ready_module_that_was_changed_is_refused(tmp_path: Path) -> None:
    layers = """
    def ready():
        block = Block(8)
        block.gain = 5.0
        return block
    @triton_candidate(inputs=rows, init=ready)
    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.gain = 1.0
        def forward(self, x): return x * self.gain
    """
    assert "changes the module after making it" in refusal(tmp_path, layers)


def test_a_constructor_argument_that_is_a_module_is_taken_from_the_source(tmp_path: Path) -> None:
    layers = """
    @triton_candidate(inputs=rows, init=lambda: (nn.GELU(approximate="tanh"), 2.0))
    class Block(nn.Module):
        def __init__(self, act, gain):
            super().__init__()
            self.act, self.gain = act, gain
        def forward(self, x): return self.act(x) * self.gain
    """
    assert "return [nn.GELU(approximate='tanh'), 2.0]" in written(tmp_path, layers)


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
    made = standalone(live, live.cases[0])
    space = executed(made)
    assert space["get_init_inputs"]() == [8]
    assert space["get_inputs"]()[0].shape == (4, 8)
    assert space["Model"](8)(*space["get_inputs"]()).shape == (4, 8)


def test_an_adopted_class_is_shown_as_it_was_written(tmp_path: Path) -> None:
    layers = """
    @triton_candidate(inputs=rows, init=(8,), kernel="PACKAGE._triton.scale")
    class Scale(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))
        def forward(self, x): return x * self.weight
    """
    assert "return x * self.weight" in written(tmp_path, layers)


# --------------------------------------------------------------------------- refusals


def test_a_closure_is_refused(tmp_path: Path) -> None:
    layers = """
    def make(gain):
        class Inner(nn.Module):
            def forward(self, x): return x * gain
        return Inner
    Scale = make(3.0)
    triton_candidate(Scale, inputs=rows)
    """
    assert "`gain` of the function around it; move it to module level" in refusal(tmp_path, layers)


def test_a_class_without_source_is_refused(tmp_path: Path) -> None:
    before = "space = {'nn': nn, '__name__': __name__}\nexec('class Made(nn.Module):\\n    def forward(self, x): return x', space)\n"
    layers = before + "Made = space['Made']\ntriton_candidate(Made, inputs=rows)\n"
    assert "the class Made has no source" in refusal(tmp_path, layers)


def test_a_replaced_forward_is_refused(tmp_path: Path) -> None:
    layers = scale("x + 1") + "def other(self, x): return x + 2\nScale.forward = other\n"
    assert "Scale.forward was replaced" in refusal(tmp_path, layers)


def test_a_name_that_nothing_defines_is_refused(tmp_path: Path) -> None:
    assert "reads `undefined`" in refusal(tmp_path, scale("x if x.shape[0] else undefined"))


def test_global_state_is_refused(tmp_path: Path) -> None:
    before = "COUNT = 0\ndef count(x):\n    global COUNT\n    COUNT += 1\n    return x\n"
    assert "keeps state in the global `COUNT`" in refusal(tmp_path, scale("count(x)", before))


def test_a_module_used_as_a_value_is_refused(tmp_path: Path) -> None:
    before = "from . import ops\n"
    text = refusal(
        tmp_path, scale("getattr(ops, 'double')(x)", before), {"ops.py": "def double(x): return x * 2\n"}
    )
    assert "uses the module `ops` as a value" in text


def test_a_method_of_a_configuration_is_refused(tmp_path: Path) -> None:
    layers = """
    class Config:
        def width(self): return 8
    @triton_candidate(inputs=rows, init=lambda: (Config(),))
    class Block(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.width = config.width()
        def forward(self, x): return x * self.width
    """
    assert "it reads width of its Config, and that is the method Config.width" in refusal(tmp_path, layers)


def test_any_number_of_constructor_arguments(tmp_path: Path) -> None:
    layers = """
    @triton_candidate(inputs=rows, init=(8, 16, 8))
    class Block(nn.Module):
        def __init__(self, first, *widths):
            super().__init__()
            self.linears = nn.Sequential(*(nn.Linear(a, b) for a, b in zip((first, *widths), widths)))
        def forward(self, x): return self.linears(x)
    """
    assert "return [8, 16, 8]" in written(tmp_path, layers)


def test_a_name_bound_inside_a_comprehension(tmp_path: Path) -> None:
    assert written(tmp_path, scale("sum(y * k for k in range(3) if (y := x + k) is not None)"))


def test_what_only_named_an_entry_of_a_table_is_not_copied(tmp_path: Path) -> None:
    layers = """
    from types import SimpleNamespace
    ACTS = {"relu": nn.ReLU, "gelu": nn.GELU}
    @triton_candidate(inputs=rows, init=(SimpleNamespace(act="gelu", gain=2.0),))
    class Block(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.function, self.gain = ACTS[config.act](), config.gain
        def forward(self, x): return self.function(x) * self.gain
    """
    text = written(tmp_path, layers)
    assert "nn.GELU()" in text
    assert "SimpleNamespace(gain=2.0)" in text


def test_a_list_of_a_configuration_is_written_as_it_was_read(tmp_path: Path) -> None:
    layers = """
    class Config:
        def __init__(self): self.widths = [8, 8]
    @triton_candidate(inputs=rows, init=lambda: (Config(),))
    class Block(nn.Module):
        def __init__(self, config):
            super().__init__()
            config.widths.append(4)
            self.gain = sum(config.widths)
        def forward(self, x): return x * self.gain
    """
    assert "SimpleNamespace(widths=[8, 8])" in written(tmp_path, layers)


def test_a_configuration_that_is_indexed(tmp_path: Path) -> None:
    layers = """
    class Config(dict):
        pass
    @triton_candidate(inputs=rows, init=lambda: (Config(width=8), {"act": F.gelu}))
    class Block(nn.Module):
        def __init__(self, config, more):
            super().__init__()
            self.linear, self.act = nn.Linear(config["width"], 8), more["act"]
        def forward(self, x): return self.act(self.linear(x))
    """
    assert "return [{'width': 8}, {'act': F.gelu}]" in written(tmp_path, layers)


def test_a_constructor_with_loose_arguments_is_refused(tmp_path: Path) -> None:
    layers = """
    @triton_candidate(inputs=rows, init={"width": 8})
    class Block(nn.Module):
        def __init__(self, **options):
            super().__init__()
            self.width = options["width"]
        def forward(self, x): return x * self.width
    """
    assert "its constructor takes values by **options" in refusal(tmp_path, layers)


def test_a_constant_set_in_several_places_is_written_by_value_or_refused(tmp_path: Path) -> None:
    before = "if torch.__version__:\n    GAIN = 2\nelse:\n    GAIN = 3\n"
    assert "GAIN = 2\n" in written(tmp_path, scale("x * GAIN", before))
    before = "if torch.__version__:\n    ACT = nn.GELU()\nelse:\n    ACT = nn.ReLU()\n"
    assert "the value of `ACT`" in refusal(tmp_path, scale("ACT(x)", before))
