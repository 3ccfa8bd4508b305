from __future__ import annotations

import importlib
import importlib.util
import pickle
import shutil
import sys
import textwrap

import pytest
import torch
from transformers import LlamaForCausalLM

from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_judge.target.importing import import_file
from kernelllm_judge.target.live import Call, LiveTarget, TargetError, load_target
from kernelllm_runtime.domain import misfit
from pytest_kernelllm.discover.scan import scan

HEAD = """
import torch
from torch import nn
from pytest_kernelllm import triton_candidate
"""

NORM = HEAD + textwrap.dedent(
    """
    def inputs(batch: int = 2, seq: int = 8):
        return torch.randn(batch, seq, 16)

    OPTIONS = dict(dims={"batch": (1, 64), "seq": (1, 4096)}, dtypes=("float32", "bfloat16"))

    @triton_candidate(inputs=inputs, init=(16,), **OPTIONS)
    class Norm(nn.Module):
        def __init__(self, width, eps=1e-6):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(width))
            self.register_buffer("steps", torch.zeros(1, dtype=torch.int64))
            self.eps = eps

        def forward(self, x, residual=None):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
    """
)


def load(root, name=None, **options) -> LiveTarget:
    found = scan([root], root, **options)
    assert found.problems == ()
    (target,) = [t for t in found.targets if name in (None, t.name)]
    return load_target(root, target)


def small(text: str, **marker: str) -> str:
    """A file with one target; ``marker`` overrides its arguments."""
    arguments = {"inputs": "lambda: torch.randn(2, 4)", **marker}
    shown = ", ".join(f"{k}={v}" for k, v in arguments.items() if v)
    return (
        HEAD
        + f"@triton_candidate({shown})\nclass A(nn.Module):\n"
        + textwrap.indent(textwrap.dedent(text), "    ")
    )


IDENTITY = "def forward(self, x): return x + 1"


def test_cases_and_domain(project):
    live = load(project.write(norm=NORM))
    assert [c.name for c in live.cases] == ["default-float32", "default-bfloat16"]
    assert live.case("default-bfloat16").domain == Domain(
        inputs={"x": TensorSpec("bfloat16", ("batch", "seq", 16))},
        attributes={"weight": TensorSpec("bfloat16", (16,)), "steps": TensorSpec("int64", (1,)), "eps": 1e-6},
        dims={"batch": (1, 64), "seq": (1, 4096)},
    )
    assert live.case("default-float32").sizes == {"batch": 2, "seq": 8}
    assert list(live.signature.parameters) == ["x", "residual"]
    assert live.init_arguments(live.cases[0]) == Call((16,), {})


def test_build_is_repeatable_and_leaves_the_random_state_alone(project):
    live = load(project.write(norm=NORM))
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    one, two = (live.build(live.cases[1]) for _ in range(2))
    first, second = live.inputs(live.cases[1], 3), live.inputs(live.cases[1], 4)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.weight, two.weight) and one.weight is not two.weight
    assert (one.weight.dtype, one.steps.dtype, one.training) == (torch.bfloat16, torch.int64, False)
    assert one(*first.args).dtype == torch.bfloat16
    assert torch.equal(first.args[0], live.inputs(live.cases[1], 3).args[0])
    assert not torch.equal(first.args[0], second.args[0])


def test_sizes_override_defaults(project):
    live = load(project.write(norm=NORM))
    call = live.inputs(live.cases[0], 0, {"seq": 3})
    assert live.bind(call)["x"].shape == (2, 3, 16)
    with pytest.raises(KeyError, match="width"):
        live.inputs(live.cases[0], 0, {"width": 3})


def test_package_file_is_imported_under_its_real_name(project):
    text = small(IDENTITY, init="()").replace("import torch\n", "import torch\nfrom ..sizes import N\n", 1)
    packages = {"src/shop/__init__.py": "", "src/shop/nn/__init__.py": "", "src/shop/sizes.py": "N = 4"}
    root = project.write_files({**packages, "src/shop/nn/layers.py": text})
    live = load(root)
    assert live.cls.__module__ == "shop.nn.layers"
    assert isinstance(pickle.loads(pickle.dumps(live.build(live.cases[0]))), live.cls)
    assert load(root).cls is live.cls


def test_a_package_that_fails_after_the_file_fails_each_time(project):
    """Python leaves the modules that such a package has imported, and would find them the second time."""
    root = project.write_files(
        {"store/__init__.py": "from . import layers\nimport nowhere", "store/layers.py": small(IDENTITY)}
    )
    for _ in range(2):
        with pytest.raises(TargetError, match=r"^store/layers\.py cannot be imported: .*nowhere"):
            load(root)
    (root / "store" / "__init__.py").write_text("")
    importlib.invalidate_caches()
    assert load(root).cls.__module__ == "store.layers"


def test_lone_files_of_one_name(project, monkeypatch):
    monkeypatch.delitem(sys.modules, "layers", raising=False)  # another test's, whose files may be elsewhere
    text = "from sizes_of_a import N\n" + small(IDENTITY).replace("2, 4", "2, N")
    files = {
        "a/layers.py": text,
        "a/sizes_of_a.py": "N = 4",
        "b/layers.py": small(IDENTITY),
        "c/json.py": text,
        "d/this.py": text,
    }
    root = project.write_files(files)
    lives = [load_target(root, t) for t in scan([root], root).targets]
    assert lives[0].cls.__module__ == "layers" and lives[1].cls.__module__ not in ("layers", "json")
    assert all(live.cls.__module__ not in sys.stdlib_module_names for live in lives)
    for live in lives:
        assert isinstance(pickle.loads(pickle.dumps(live.build(live.cases[0]))), live.cls)
    assert "c" not in (sys.modules["json"].__file__ or "").split("/")


def test_llama_layers_marked_in_a_conftest(project):
    root = project.write(
        conftest=HEAD
        + textwrap.dedent(
            """
            from transformers import LlamaConfig
            from transformers.models.llama import modeling_llama as modeling

            def inputs(batch=2, seq=6):
                return {"hidden_states": torch.randn(batch, seq, 32)}

            def mlp_inputs(tokens=3):
                return torch.randn(tokens, 32)

            def mlp():
                return (LlamaConfig(hidden_size=32, intermediate_size=48, num_attention_heads=2),)

            triton_candidate(modeling.LlamaRMSNorm, init=(32,), inputs=inputs, dims={"batch": (1, 8)})
            triton_candidate(modeling.LlamaMLP, init=mlp, inputs={"long": mlp_inputs}, dtypes=("bfloat16",))
            """
        )
    )
    norm = load(root, "LlamaRMSNorm")
    assert norm.cls.__module__ == "transformers.models.llama.modeling_llama"
    assert norm.cases[0].domain.inputs == {"hidden_states": TensorSpec("float32", ("batch", 6, 32))}
    assert norm.cases[0].domain.attributes["variance_epsilon"] == 1e-6

    live = load(root, "LlamaMLP")
    (case,) = live.cases
    assert case.name == "long-bfloat16"
    pinned = case.domain.attributes
    assert pinned["act_fn.__class__"].endswith(".SiLUActivation") or pinned["act_fn.__class__"].endswith(
        ".SiLU"
    )
    assert pinned["down_proj.weight"] == TensorSpec("bfloat16", (32, 48))
    assert pinned["gate_proj.bias"] is None and pinned["hidden_size"] == 32
    assert live.build(case)(*live.inputs(case, 0).args).shape == (3, 32)


MARKED_LAYER = HEAD + textwrap.dedent(
    """
    import inspect
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    CONFIG = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_attention_heads=2, num_hidden_layers=2, attn_implementation="sdpa"
    )

    def call(seq=4):
        angles = torch.randn(1, seq, 16)
        named = inspect.signature(LlamaDecoderLayer.forward).parameters  # code that goes through everything by name
        return (torch.randn(1, seq, 32),), {
            "position_ids": torch.arange(seq)[None],
            "position_embeddings": (angles.cos(), angles.sin()),
        }

    triton_candidate(LlamaDecoderLayer, init=lambda: (CONFIG, 0), inputs=call, unread=("self_attn.layer_idx",))
    """
)


def test_the_layers_of_a_model_are_inside_the_domain_of_one_built_alone(project):
    """A model adds attributes of its own to its parts, which nothing reads."""
    root = project.write(marked=MARKED_LAYER)
    (case,) = load(root, "LlamaDecoderLayer").cases
    model = LlamaForCausalLM(import_file(root / "marked.py", root).CONFIG).eval()
    assert [misfit(case.domain, layer) for layer in model.model.layers] == [None, None]
    model.model.layers[1].self_attn.scaling = 2.0
    assert "scaling" in misfit(case.domain, model.model.layers[1])


def test_an_enum_pins_its_members_and_not_what_its_own_machinery_mentions(project):
    text = """
        import enum

        class Kind(str, enum.Enum):
            MEAN = "mean"
            SUM = "sum"

        @triton_candidate(inputs=lambda: torch.randn(2, 4), init=("mean",))
        class Reduced(nn.Module):
            def __init__(self, kind):
                super().__init__()
                self.kind = Kind(kind)

            def forward(self, x):
                return x.mean(-1) if self.kind is Kind.MEAN else x.sum(-1)
    """
    (case,) = load(project.write(layers=HEAD + textwrap.dedent(text))).cases
    tables = ("_member_map_", "_member_names_", "_value2member_map_")
    assert {*case.domain.attributes} == {
        "value:kind",
        "global:Kind.MEAN",
        *(f"global:Kind.{t}" for t in tables),
    }


def test_files_that_mark_one_class_of_a_library_each_get_their_own_marker(project):
    for width in (8, 16):
        text = f"""
            def rows(n: int = 2):
                return torch.randn(n, {width})

            triton_candidate(nn.LayerNorm, inputs=rows, init=({width},))
        """
        root = project.write(**{f"marked_{width}": HEAD + textwrap.dedent(text)})
    second, first = scan([root], root).targets
    assert first.path == "marked_8.py"
    assert first.source_hash != second.source_hash
    for target, width in ((first, 8), (second, 16), (first, 8)):
        (case,) = load_target(root, target).cases
        assert case.domain.attributes["weight"].shape == (width,)
        assert case.domain.inputs["input"].shape == ("n", width)


def test_a_class_that_only_other_files_mark_is_ambiguous(project):
    files = {
        f"marked_{width}": HEAD + f"if {width} > 8: triton_candidate(nn.GroupNorm, inputs=lambda: torch.randn(2, {width}), init=(2, {width}))"
        for width in (8, 16, 32)
    }  # fmt: skip
    root = project.write(**files)
    found = {target.path: target for target in scan([root], root).targets}
    for path in ("marked_16.py", "marked_32.py"):
        load_target(root, found[path])
    with pytest.raises(TargetError, match=r"is marked by other modules, not by marked_8.py itself"):
        load_target(root, found["marked_8.py"])


def test_what_pins_a_domain(project):
    text = """
    scale = 2.0

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, stride=2, bias=False)
        self.layers = nn.ModuleList([nn.Dropout(0.25)])
        self.act, self.built = torch.nn.functional.gelu, torch.relu
        self.config = Config()
        self._hidden, self._unread = 5, 6
        self.absent = None

    def forward(self, x):
        return x * self.scale * self._hidden if self.config.rope.kind == "a" else x + self.method()

    def method(self): return 1
    """
    root = project.write(a=small(text))
    source = (root / "a.py").read_text()
    config = "class Config:\n    unread = 3\n    class rope:\n        kind = 'a'\n\n"
    (root / "a.py").write_text(source.replace("@triton", config + "@triton"))
    pinned = load(root).cases[0].domain.attributes
    for name, value in {
        "conv.__class__": "torch.nn.modules.conv.Conv1d",
        "conv.stride[0]": 2,
        "conv.bias": None,
        "layers.0.p": 0.25,
        "config.rope.kind": "a",
        "scale": 2.0,
        "_hidden": 5,
        "absent": None,
    }.items():
        assert pinned[name] == value, name
    assert "gelu" in str(pinned["act"]) and "relu" in str(pinned["built"])
    assert not {"_unread", "config.unread", "training", "method", "forward"} & set(pinned)


@pytest.mark.parametrize(
    ("made", "inputs", "dims"),
    [
        ("torch.randn(n, m)", {"x": ("n", "m")}, {"n", "m"}),
        ("torch.randn(n * m, 4)", {"x": (24, 4)}, set()),
        ("torch.randn(n, m + 1)", {"x": ("n", 5)}, {"n"}),
        ("torch.randn(n, n)", {"x": ("n", "n")}, {"n"}),
        ("torch.randn(6, 4)", {"x": (6, 4)}, set()),
        ("torch.randn(*[2] * n)", {"x": (2,) * 6}, set()),
        ("(torch.randn(n, m), n)", {"x": (6, "m"), "y": 6}, {"m"}),
        (
            "(torch.randn(n, 4), torch.ones(n, m, dtype=torch.long))",
            {"x": ("n", 4), "y": ("n", "m")},
            {"n", "m"},
        ),
        # of another form only at the default sizes
        ("(torch.randn(n, m), n > 5)", {"x": (6, 4), "y": True}, set()),
        # cannot be made without data
        ("torch.ones(n, m)[: int(torch.ones(n).sum())]", {"x": ("n", "m")}, {"n", "m"}),
        ("torch.from_numpy(__import__('numpy').zeros((n, m)))", {"x": ("n", "m")}, {"n", "m"}),
    ],
)
def test_dimensions_are_found_by_calling(project, made, inputs, dims):
    text = small(
        "def forward(self, x, y=None): return x", inputs="make", dims="{'n': (1, 9), 'm': (2, 4)}", init="()"
    )
    text = text.replace("@triton", f"def make(n=6, m=4):\n    return {made}\n\n@triton")
    (case,) = load(project.write(a=text)).cases
    shown = {k: v.shape if isinstance(v, TensorSpec) else v for k, v in case.domain.inputs.items()}
    assert shown == inputs
    assert set(case.domain.dims) == set(case.sizes) == dims
    assert {"n": 6, "m": 4}.items() >= case.sizes.items()


def test_narrow_ranges_keep_dimensions_apart(project):
    dims = "{'n': (1, 2), 'm': (1, 2), 'k': (3, 3)}"
    text = small(IDENTITY, inputs="lambda n=1, m=1, k=3: torch.randn(m, n, k)", dims=dims)
    (case,) = load(project.write(a=text)).cases
    assert case.domain.inputs["x"].shape == ("m", "n", 3) and set(case.domain.dims) == {"n", "m"}


def test_probing_never_makes_large_tensors(project):
    """A terabyte of inputs has shapes all the same."""
    text = small(IDENTITY, inputs="lambda n=1 << 19: torch.randn(n, 1 << 19)", dims="{'n': (1, 1 << 20)}")
    (case,) = load(project.write(a=text)).cases
    assert case.domain.inputs["x"].shape == ("n", 1 << 19)


def test_an_original_whose_results_are_large_is_not_tried(project):
    """Small inputs whose product would fill 64 GiB."""
    forward = "    def forward(self, x): return x @ x.t()"
    text = small(forward, inputs="lambda: torch.randn(1 << 17, 8)", dims="{}")
    (case,) = load(project.write(a=text)).cases
    assert case.domain.inputs["x"].shape == (1 << 17, 8)


@pytest.mark.parametrize(
    ("init", "arguments"),
    [
        ("(3, 4)", Call((3, 4))),
        ("{'a': 3, 'b': 4}", Call((), {"a": 3, "b": 4})),
        ("((3,), {'b': 4})", Call((3,), {"b": 4})),
        ("lambda: [3, 4]", Call((3, 4))),
        ("lambda: A(3, 4)", Call()),
    ],
)
def test_forms_of_init(project, init, arguments):
    text = """
    def __init__(self, a, b):
        super().__init__()
        self.a, self.b = a, b
    def forward(self, x): return x
    """
    live = load(project.write(a=small(text, init=init)))
    module = live.build(live.cases[0])
    assert (module.a, module.b) == (3, 4)
    assert live.init_arguments(live.cases[0]) == arguments
    assert live.build(live.cases[0]) is not module


@pytest.mark.parametrize("init", ["(SHARED,)", "lambda: READY"])
def test_what_init_gives_is_never_changed(project, init):
    text = """
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
    def forward(self, x): return self.layer(x)
    """
    root = project.write(a=small(text, init=init, dtypes="('bfloat16',)"))
    source = (root / "a.py").read_text().replace("@triton", "SHARED = nn.Linear(4, 4)\n@triton")
    (root / "a.py").write_text(source + "\nREADY = A(SHARED)\n")
    live = load(root)
    assert live.build(live.cases[0]).layer.weight.dtype == torch.bfloat16
    assert sys.modules[live.cls.__module__].SHARED.weight.dtype == torch.float32


def test_file_that_is_imported_already_is_not_imported_again(project):
    root = project.write(conftest_like=small(IDENTITY))
    spec = importlib.util.spec_from_file_location("tests.its_name", root / "conftest_like.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["tests.its_name"] = module
    spec.loader.exec_module(module)
    assert load(root).cls is module.A


def test_inputs_by_position_and_keyword(project):
    live = load(
        project.write(
            a=small(
                "def forward(self, x, *rest, mask=None, flag=True, **options): return x",
                inputs="lambda: ((torch.ones(4, 2).t().double(),), {'mask': torch.ones(2, dtype=torch.bool)})",
                dtypes="('float16',)",
            )
        )
    )
    call = live.inputs(live.cases[0], 0)
    bound = live.bind(call)
    assert list(bound) == ["x", "mask"]
    assert bound["x"].is_contiguous() and bound["x"].dtype == torch.float16
    assert bound["mask"].dtype == torch.bool


def test_training_backward_and_plain_tensors(project):
    text = """
    def __init__(self):
        super().__init__()
        self.table = torch.ones(4)
        self.drop = nn.Dropout(0.5)
    def forward(self, x): return self.drop(x) + self.table
    """
    live = load(project.write(a=small(text, training="True", backward="True")))
    assert live.cases[0].domain.training and live.cases[0].domain.grad and live.cases[0].dtype is None
    assert live.build(live.cases[0]).drop.training
    assert live.build(live.cases[0], device="meta").table.is_meta


def test_adopted_classes_run_the_original_at_every_depth(project):
    """As the runtime does it: the class's ``forward`` dispatches and keeps the original."""
    text = """
    def __init__(self, depth=1):
        super().__init__()
        self.inner = A(depth - 1) if depth else None
    def forward(self, x, extra=None): return x + 1 + (self.inner(x) if self.inner else 0)
    """
    root = project.write(a=small(text))
    with (root / "a.py").open("a") as file:
        file.write(
            "\ndef dispatch(self, *args): raise AssertionError\n"
            "dispatch.__kernelllm_original__ = A.forward\nA.forward = dispatch\n"
        )
    live = load(root)
    assert list(live.signature.parameters) == ["x", "extra"]
    module = live.build(live.cases[0])
    assert torch.equal(module(torch.zeros(2)), torch.full((2,), 2.0))
    assert "forward" not in live.cases[0].domain.attributes


def test_kernelbench_file(project):
    root = project.write_files(
        {
            "level1/1_Scale.py": """
            import torch
            class Model(torch.nn.Module):
                def __init__(self, factor):
                    super().__init__()
                    self.factor = factor
                def forward(self, x): return x * self.factor
            N = 1 << 40
            def get_inputs(): return [torch.rand(N, 3)]
            def get_init_inputs(): return [2.5]
            """
        }
    )
    live = load(root, kernelbench=True)
    (case,) = live.cases
    assert (case.name, case.domain.inputs["x"].shape) == ("default", (1 << 40, 3))
    assert live.build(case).factor == 2.5
    assert live.inputs(case, 0, device="meta").args[0].is_meta


def test_inputs_from_elsewhere(project):
    root = project.write(a=small(IDENTITY, inputs=""))
    (target,) = scan([root], root).targets
    assert load_target(root, target, inputs=lambda: torch.ones(7)).cases[0].sizes == {"rows": 7}


NEEDS_WIDTH = "def __init__(self, width): super().__init__()\ndef forward(self, x): return x"

WITH_PART = """def __init__(self):
    super().__init__()
    self.part = {}
def forward(self, x): return self.part(x)"""

MISTAKES = {
    "no inputs": (small(IDENTITY, inputs=""), r"a\.py: A has no inputs; write triton_candidate\(inputs="),
    "no constructor arguments": (
        small(NEEDS_WIDTH),
        r"a\.py: A cannot be built: TypeError: .*'width'; give its constructor's arguments with init=",
    ),
    "wrong constructor arguments": (
        small(NEEDS_WIDTH, init="(1, 2)"),
        r"a\.py: A cannot be built: .*; check init=",
    ),
    "constructor fails": (
        small("def __init__(self):\n    raise ValueError('odd\\nsize.')"),
        r"a\.py: A cannot be built: ValueError: odd size \(a\.py, line 8\); check init=",
    ),
    "init of another form": (small(IDENTITY, init="3"), r"a\.py: A: init= gives a int; it must be a tuple"),
    "init fails": (
        small(IDENTITY, init="lambda: 1 / 0"),
        r"a\.py: A: its init callable fails: ZeroDivisionError",
    ),
    "init makes another class": (small(IDENTITY, init="lambda: nn.ReLU()"), r"returns a ReLU, not a A\."),
    "forward fails": (
        small("def forward(self, x): return x @ x"),
        r"a\.py: A: forward\(x: float32\[2, 4\]\) fails: RuntimeError: .* \(a\.py, line 7\); check init= and inputs=",
    ),
    "inputs fail": (
        small(IDENTITY, inputs="lambda n=3: torch.ones(n, 12 // (4 - n))", dims="{'n': (1, 5)}"),
        r"a\.py: A: its inputs callable fails when called with \(n=4\) on cpu: ZeroDivisionError",
    ),
    "inputs of another form": (
        small(IDENTITY, inputs="lambda: 3"),
        r"inputs callable returns a int; it must return",
    ),
    "inputs do not fit": (
        small(IDENTITY, inputs="lambda: {'y': torch.ones(1)}"),
        r"a\.py: A: its inputs do not fit forward\(x\): missing a required argument: 'x'",
    ),
    "inputs go into *args": (
        small("def forward(self, *xs): return xs[0]"),
        r"its inputs go into \*xs of forward\(\*xs\); name the parameters",
    ),
    "inputs of another type": (
        small(IDENTITY, inputs="lambda: ({1},)"),
        r"the argument `x` is a set; forward's arguments must be tensors, plain values .*, or tuples, lists and dicts",
    ),
    "a set in a list": (
        small(IDENTITY, inputs="lambda: ([torch.ones(1), {1}],)"),
        r"the argument `x\[1\]` is a set; forward's arguments must be tensors",
    ),
    "unknown dimension": (
        small(IDENTITY, dims="{'btach': (1, 2)}"),
        r"dims names 'btach', but no inputs callable",
    ),
    "no default": (
        small(IDENTITY, inputs="lambda n: torch.ones(n)", dims="{'n': (1, 2)}"),
        r"a\.py: A: `n` needs a default size, such as `n: int = 1`",
    ),
    "default out of range": (
        small(IDENTITY, inputs="lambda n=3: torch.ones(n)", dims="{'n': (1, 2)}"),
        r"the default n=3 lies outside dims\['n'\] = \(1, 2\)",
    ),
    "unknown dtype": (
        small(IDENTITY, dtypes="('int8',)"),
        r"dtypes has 'int8'; write floating dtypes such as",
    ),
    "not a module": (
        small(IDENTITY).replace("(nn.Module)", ""),
        r"a\.py: A is not an nn\.Module class; mark a class",
    ),
    "import fails": (
        "import no_such_thing\n" + small(IDENTITY),
        r"^a\.py cannot be imported: ModuleNotFoundError: No",
    ),
    "exits": (
        small(IDENTITY) + "\nraise SystemExit(3)",
        r"^a\.py cannot be imported: SystemExit: 3 \(a\.py, line 8\)",
    ),
    "unmarked when imported": (
        small(IDENTITY) + "\nclass B(nn.Module): ...\nif not B: triton_candidate(B)\nA = B",
        r"a\.py: A is not marked once a\.py is imported",
    ),
    "a part with weight_norm's hook": (
        small(WITH_PART.format("nn.utils.weight_norm(nn.Linear(4, 4))")),
        r"a\.py: A: `self\.part` has hooks .*, where no kernel can be adopted; use torch\.nn\.utils\.parametrizations\.weight_norm in place of",
    ),
    "a part with a hook": (
        small(
            WITH_PART.format("nn.Linear(4, 4)")
            + "\nmade = lambda: (a := A(), a.part.register_forward_hook(print))[0]",
            init="lambda: made()",
        ).replace("\n    made", "\nmade"),
        r"a\.py: A: `self\.part` has hooks .*; remove them, or mark another class",
    ),
    "weight_norm of the module itself": (
        small(
            "def __init__(self):\n"
            "    super().__init__()\n    self.weight = nn.Parameter(torch.ones(4, 4))\n    nn.utils.weight_norm(self)\n"
            "def forward(self, x): return x @ self.weight"
        ),
        r"a\.py: A: the module has hooks .*; use torch\.nn\.utils\.parametrizations\.weight_norm in place",
    ),
    "a ready module that cannot be copied": (
        small(WITH_PART.format("nn.utils.weight_norm(nn.Linear(4, 4))"), init="lambda: A()"),
        r"a\.py: A: the module that init returns cannot be copied \(RuntimeError: Only Tensors .*; build a new one",
    ),
    "caches tensors": (
        small(IDENTITY, inputs="CACHE").replace(
            "@triton", "import functools\nCACHE = functools.cache(lambda: torch.ones(2))\n@triton"
        ),
        r"inputs callable returns tensors without data; make new ones each time",
    ),
}


def test_lists_among_the_inputs_are_taken_apart_and_put_together(project):
    forward = "def forward(self, levels, more): return [x + 1 for x in levels]"
    inputs = "lambda n=4: ([torch.ones(n, 2), torch.ones(n, 3)], {'none': [], 'past': [(torch.ones(2), 3)]})"
    live = load(project.write(a=small(forward, inputs=inputs, dims="{'n': (1, 5)}")), "A")
    assert live.cases[0].domain.inputs == {
        "levels.__class__": "list",
        "levels[0]": TensorSpec("float32", ("n", 2)),
        "levels[1]": TensorSpec("float32", ("n", 3)),
        "more['none'].__class__": "list",
        "more['past'].__class__": "list",
        "more['past'][0][0]": TensorSpec("float32", (2,)),
        "more['past'][0][1]": 3,
    }
    call = live.inputs(live.cases[0], 0, {"n": 3})
    levels, more = call.args
    assert type(levels) is list and [x.shape for x in levels] == [(3, 2), (3, 3)]
    assert more["none"] == [] and type(more["past"][0]) is tuple
    assert [x.shape for x in live.build(live.cases[0])(*call.args)] == [(3, 2), (3, 3)]


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_one_sentence(project, text, message):
    root = project.write(a=text)
    target = next(t for t in scan([root], root).targets if t.name == "A")
    with pytest.raises(TargetError, match=message) as caught:
        load_target(root, target)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".") and not str(caught.value).endswith("..")


def test_target_that_is_gone(project):
    root = project.write(a=small(IDENTITY))
    (target,) = scan([root], root).targets
    project.write(a="x = 1")
    with pytest.raises(TargetError, match=r"a\.py no longer marks A; run the scan again"):
        load_target(root, target)


@pytest.mark.parametrize(
    ("forward", "shape", "dims", "within"),
    [
        ("return x + 1", "(n, 64)", {"n": (1, 1 << 20)}, None),
        ("return x + 1", "(n, 64)", {"n": (1, 1 << 26)}, {"n": (1, 1 << 24)}),
        ("return torch.outer(x, x), 1", "(n,)", {"n": (1, 1 << 22)}, {"n": (1, 1 << 15)}),
        ("return {'s': x.sum()}", "(n,)", {"n": (1, 1 << 22)}, None),
        ("return x[: int(x.sum() * 0) + 1]", "(n,)", {"n": (1, 1 << 20)}, {"n": (1, 1 << 15)}),
        ("return x + 1", "(n, m)", {"n": (1, 1 << 20), "m": (1, 1 << 20)}, {"n": (1, 1 << 15), "m": (1, 1 << 15)}),
        ("return x + 1", "(1 << 16, 1 << 16)", {"n": (1, 8)}, None),
    ],
)  # fmt: skip
def test_sizes_that_offsets_of_32_bits_reach(project, forward, shape, dims, within):
    """Counted are inputs and outputs, whose sizes are found without data; where that fails, the square of the inputs."""
    sizes = ", ".join(f"{name}=5" for name in dims)
    text = small(
        f"def forward(self, x): {forward}", inputs=f"lambda {sizes}: torch.randn({shape})", dims=repr(dims)
    )
    (case,) = load(project.write(a=text)).cases
    assert case.dims_within_32_bits == within


def test_a_file_whose_name_is_no_identifier_has_the_same_name_in_every_checkout(project, tmp_path):
    text = "import torch\n\nclass Model(torch.nn.Module): ...\n"
    root = project.write_files(
        {"a/level3/1_Net.py": text, "b/level3/1_Net.py": text, "c/level3/1_Net.py": text}
    )
    shutil.copytree(root, elsewhere := tmp_path / "elsewhere")
    files = [f"{name}/level3/1_Net.py" for name in "abc"]
    modules = [import_file(root / file, root) for file in files]
    names = [module.__name__ for module in modules]
    assert names[0] == modules[0].Model.__module__ == "kernelllm_level3_1_Net"
    assert len(set(names)) == 3  # they are loaded at once
    for name in names:
        del sys.modules[name]
    assert [import_file(elsewhere / file, elsewhere).__name__ for file in files] == names
    third = shutil.copytree(root, tmp_path / "third")
    roots = [root, third]
    assert len({id(sys.modules[import_file(where / files[0], where).__name__]) for where in roots}) == 2
    alone = (elsewhere / files[0]).rename(elsewhere / "1_Net.py")
    assert import_file(alone, elsewhere).__name__ == "kernelllm_1_Net"
