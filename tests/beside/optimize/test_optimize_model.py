"""``optimize_model`` on small models: what is replaced and what is not, and that nothing else about them changes."""

import copy
import gc
import inspect
import io
import json
import pickle
import re
import sys
import warnings
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from standing_now import NOW
from torch import nn
from torch.nn.utils import parametrize, prune

from kernelllm_judge.core.errors import ConfigError
from kernelllm_judge.core.kernel_module import Provenance, compose, with_supports
from kernelllm_judge.core.records import (
    Candidate,
    Domain,
    KernelRecord,
    Ratio,
    Spread,
    TensorSpec,
    Timing,
    Verdict,
)
from kernelllm_judge.environment import find_environment
from kernelllm_judge.target.live import load_target
from kernelllm_runtime import place_kernels
from kernelllm_runtime.instance import TextKernel
from pytest_kernelllm import optimize_model
from pytest_kernelllm.beside.optimize import called
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.runtime import KernelLLMWarning, explain
from pytest_kernelllm.store import Store

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")

LAYERS = '''
import torch
from torch import nn


class Scale(nn.Module):
    """Multiply by a learned weight, add one."""

    def __init__(self, width=8):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, width + 1))

    def forward(self, x):
        return x * self.weight + 1


class Outer:
    class Inner(Scale):
        def forward(self, x):
            return super().forward(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Scale() for _ in range(3))
        self.wide = Scale(9)
        self.plain = nn.Linear(8, 8)

    def forward(self, x):
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.plain(x)
'''

MARKED = """
import torch
from layers import Scale
from pytest_kernelllm import triton_candidate

triton_candidate(Scale, inputs=lambda: torch.randn(4, 8))
"""

# The kernel adds 100, not one, so that a test can tell which of the two ran.
BODY = """
@triton.jit
def scale_kernel(x_ptr, weight_ptr, out_ptr, WIDTH: tl.constexpr):
    index = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(x_ptr + index)
    tl.store(out_ptr + index, x * tl.load(weight_ptr + tl.arange(0, WIDTH)) + 100)


def forward(self, x):
    out = torch.empty_like(x)
    scale_kernel[(x.shape[0],)](x, self.weight, out, WIDTH=8)
    return out
"""

HERE = find_environment("cpu")
X = torch.ones(4, 8)
MICROSECONDS = Spread(1.0, 2.0, 3.0)


def kernel_text(width: int = 8, body: str = BODY) -> str:
    domain = Domain(
        {"x": TensorSpec("float32", ("rows", width))},
        {"weight": TensorSpec("float32", (width,))},
        {"rows": (1, 16)},
    )
    return compose(Provenance("marked.py::Scale", "0" * 64, "files"), "Scale.", [domain], body)


class Project:
    """A folder with layers, a file that marks them, and a store with verdicts as the judge would have given them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "layers.py").write_text(LAYERS)
        (path / "marked.py").write_text(MARKED)

    @property
    def store(self) -> Store:
        return Store(self.path)

    def verified(self, source: str, file: str = "marked.py", name: str = "Scale", **changed) -> str:
        """Store an accepted verdict, or one with the fields in ``changed``; how reports name the kernel."""
        target = next(t for t in scan_file(self.path / file, self.path).targets if t.name == name)
        candidate = Candidate(target.id, source, "files")
        verdict = Verdict("accepted", "timing", "", candidate.kernel_hash, HERE, versions=NOW)
        record = KernelRecord(target.id, target.source_hash, candidate, replace(verdict, **changed), "2026")
        self.store.verdicts.add(record)
        return candidate.kernel_hash[:12]

    def layers(self):
        import layers

        return layers


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELLLM_INTERPRET", "1")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for name in ("KERNELLLM_STRICT", "KERNELLLM_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as modules:
        for name in ("layers", "marked", "adopted", "kept"):  # other tests have modules of these names too
            modules.delitem(sys.modules, name, raising=False)
        yield Project(tmp_path)
        for name in ("layers", "marked", "adopted", "kept"):
            sys.modules.pop(name, None)


@pytest.fixture
def model(project):
    project.verified(kernel_text())
    return project.layers().Model().eval()


def runs_kernel(module: nn.Module, x: torch.Tensor = X) -> bool:
    """Whether the kernel ran, of ``explain``'s opinion too."""
    with torch.no_grad():
        ran = bool((module(x) - (x * module.weight + 1)).abs().max() > 50)
        assert ("runs the kernel" in explain(module, x)) == ran, explain(module, x)
    return ran


def reason(report, path: str) -> str:
    return next(each.reason for each in report.modules if each.path == path)


KEPT = """
import torch
from torch import nn
from pytest_kernelllm import triton_candidate

SHIFT = [0.0]


@triton_candidate(inputs=lambda n=4: torch.randn(n, 8), dims={"n": (1, 16)})
class Scale(nn.Module):
    def __init__(self, add=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, 9.0))
        self.table = {"add": [add]}

    def forward(self, x):
        return x * self.weight + self.table["add"][0] + SHIFT[0]
"""


# --------------------------------------------------------------------------- replacing


def test_modules_with_a_verified_kernel_run_it_inside_its_domain_only(model) -> None:
    report = optimize_model(model)
    block = model.blocks[0]
    assert [each.path for each in report.replaced] == ["blocks.0", "blocks.1", "blocks.2"]
    assert runs_kernel(block)
    assert not runs_kernel(block, torch.ones(17, 8))
    assert not runs_kernel(block, X.double())
    assert not runs_kernel(block.train())
    assert runs_kernel(block.eval())
    wanting = block(X)
    assert wanting.requires_grad, "gradients are enabled here, so the original ran"


def test_a_module_in_another_state_than_the_verified_one_is_not_replaced(project) -> None:
    (project.path / "kept.py").write_text(KEPT)
    [target] = scan_file(project.path / "kept.py", project.path).targets
    live = load_target(project.path, target)
    project.verified(with_supports(kernel_text(), [live.cases[0].domain]), "kept.py")
    kept = sys.modules[live.cls.__module__]
    model = nn.ModuleList([kept.Scale(), kept.Scale(add=3.0)]).eval()
    report = optimize_model(model)
    assert [each.path for each in report.replaced] == ["0"]
    assert reason(report, "1") == "`table` is {'add': [3.0, ], }, the kernel is for {'add': [1.0, ], }"
    assert runs_kernel(model[0])
    for change in (lambda: model[0].table["add"].__setitem__(0, 1.5), lambda: kept.SHIFT.__setitem__(0, 0.5)):
        model[0].table["add"][0] = 1.0
        assert runs_kernel(model[0])
        change()
        with torch.no_grad():
            assert (model[0](X) - X * model[0].weight).max() < 50
    report.restore()
    kept.SHIFT[0] = 0.0
    assert not optimize_model(nn.ModuleList([kept.Scale(2.0)]).eval()).replaced


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda block: block.train(), "the module is in train mode, the kernel is for eval mode"),
        (lambda block: prune.identity(block, "weight"), "is not part of the verified domain"),
        (
            lambda block: block.add_module("more", nn.Identity().eval()),
            "`more` is no part of the verified domain",
        ),
        (lambda block: setattr(block, "forward", lambda x: x), "this instance has a forward of its own"),
    ],
    ids=["train mode", "pruned", "another part", "another forward"],
)
def test_where_the_original_would_run_no_kernel_is_placed(model, change, why) -> None:
    change(model.blocks[0])
    report = optimize_model(model)
    assert [each.path for each in report.replaced] == ["blocks.1", "blocks.2"]
    assert why in reason(report, "blocks.0")
    assert f"2 of {len(report.modules)} modules run kernels" in str(report)


def test_the_class_and_its_other_instances_stay_as_they_are(project, model) -> None:
    Scale = project.layers().Scale
    before = dict(vars(Scale))
    optimize_model(model)
    assert dict(vars(Scale)) == before
    assert not runs_kernel(Scale().eval())
    assert all(isinstance(block, Scale) for block in model.blocks)


def test_a_report_names_every_module_with_its_kernel_or_the_reason(project, model, monkeypatch) -> None:
    report = optimize_model(model)
    kernel = report.replaced[0].kernel
    told = {each.path: each.kernel or each.reason for each in report.modules}
    assert told == {
        "": "no kernel in the store",
        "blocks": "no kernel in the store",
        "blocks.0": kernel,
        "blocks.1": kernel,
        "blocks.2": kernel,
        "wide": "`weight` has shape (9,), the kernel is for (8,)",
        "plain": "no kernel in the store",
    }
    monkeypatch.setenv("COLUMNS", "160")
    lines = str(report).splitlines()
    assert re.split(r"\s{2,}", lines[2].strip()) == ["blocks.* ×3", "Scale", kernel, "not measured"]
    assert "– `weight` has shape (9,), the kernel is for (8,)" in str(report)
    assert lines[-2] == "no kernel in the store: Linear, Model, ModuleList"
    assert lines[-1] == f"3 of 7 modules run kernels from {project.path / '.kernelllm'}"


def test_the_expected_gain_is_what_was_measured_and_where(project) -> None:
    spread = MICROSECONDS
    timing = Timing("default", spread, spread, spread, spread, Ratio(1.5, 1.44, 1.56))
    project.verified(kernel_text(), timing=(timing,))
    model = project.layers().Model().eval()
    with optimize_model(model) as report:
        assert report.replaced[0].gain == Ratio(1.5, 1.44, 1.56)
        assert "1.50x [1.44, 1.56]" in str(report)


@pytest.mark.parametrize("speedups", [(1.2, 1.3), (1.3, 1.2)])
def test_of_several_kernels_the_fastest_that_fits_is_taken(project, speedups) -> None:
    def measured(speedup):
        spread = MICROSECONDS
        return (Timing("default", spread, spread, spread, spread, Ratio(speedup, speedup, speedup)),)

    texts = (kernel_text(), kernel_text(body=BODY + "\n# another\n"))
    kernels = [
        project.verified(text, timing=measured(speedup))
        for text, speedup in zip(texts, speedups, strict=True)
    ]
    fast = kernels[speedups.index(1.3)]
    (project.path / "wide.py").write_text(MARKED.replace("(4, 8)", "(4, 9)"))
    wide = project.verified(kernel_text(9), "wide.py", timing=measured(9.0))
    report = optimize_model(project.layers().Model().eval())
    assert {each.path: each.kernel for each in report.replaced} == {
        "blocks.0": fast,
        "blocks.1": fast,
        "blocks.2": fast,
        "wide": wide,
    }


def test_with_an_example_a_kernel_that_is_slower_there_is_not_placed(project) -> None:
    project.verified(kernel_text())
    model = project.layers().Model().eval()
    report = optimize_model(
        model, example=lambda: model.blocks[0](X)
    )  # the interpreter loses to one operation
    assert reason(report, "blocks.0").startswith("the example is not faster with its kernel: 0.")
    assert not runs_kernel(model.blocks[0])
    assert runs_kernel(model.blocks[1])  # the example does not call it, so nothing is known


def test_with_an_example_a_kernel_that_is_faster_there_is_placed_with_its_gain(project) -> None:
    layers = project.path / "layers.py"
    slow = "for _ in range(400):\n            torch.linalg.svd(torch.ones(64, 64))\n        return x * self.weight + 1"
    layers.write_text(LAYERS.replace("return x * self.weight + 1", slow))
    project.verified(kernel_text())
    model = project.layers().Model().eval()
    report = optimize_model(model, example=lambda: model.blocks[0](X))
    [first] = [module for module in report.modules if module.path == "blocks.0"]
    assert first.kernel and first.gain is not None and first.gain.value > 1
    report.restore()
    assert not runs_kernel(model.blocks[0])


@pytest.mark.parametrize("mode", [True, "reduce-overhead"])
def test_a_kernel_that_torch_compile_does_not_see_is_not_placed(project, mode) -> None:
    project.verified(kernel_text())
    model = project.layers().Model().eval()
    report = optimize_model(model, example=lambda: model.blocks[0](X), compiled=mode)
    assert "torch.compile sees the original unless KERNELLLM_COMPILE=1 is set" in reason(report, "blocks.0")
    assert not runs_kernel(model.blocks[0])


def test_torch_compile_traces_what_a_placed_kernel_reads_of_its_module(project, model, monkeypatch) -> None:
    monkeypatch.setenv("KERNELLLM_COMPILE", "1")
    # Triton's interpreter cannot be traced.
    body = "def add(x, by):\n    return torch.add(x, by)\n\n\ndef forward(self, x):\n    return add(x * self.weight, 100)\n"
    project.verified(kernel_text(body=body))
    optimize_model(model)
    with torch.no_grad():
        call = torch.compile(model.blocks[0], backend="eager", fullgraph=True)
        assert float(call(X)[0, 0]) == 101.0
    torch.compiler.reset()


def test_torch_compile_sees_no_kernel_of_a_module_that_reads_objects(monkeypatch) -> None:
    monkeypatch.setenv("KERNELLLM_COMPILE", "1")

    def unseen(*names: str) -> str | None:
        domain = SimpleNamespace(attributes=dict.fromkeys(names))
        return called._unseen(SimpleNamespace(scope=SimpleNamespace(domains=(domain,), cls=nn.Linear)))

    assert unseen("weight", "eps", "value:__class__") is None
    assert "cannot compare all values" in str(unseen("weight", "value:config.hidden_size"))


def test_an_example_that_fails_leaves_the_model_as_it_was(project, model) -> None:
    before = [type(module) for module in model.modules()]
    with pytest.raises(ZeroDivisionError):
        optimize_model(model, example=lambda: model(X) + 1 / 0)
    with pytest.raises(TypeError, match="takes a callable as example, such as"):
        optimize_model(model, example=X)
    with pytest.raises(
        ValueError, match=r"names no mode of torch\.compile; its modes are default, .*reduce-overhead"
    ):
        optimize_model(model, compiled="reduced")
    assert [type(module) for module in model.modules()] == before
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("around", [torch.autocast("cpu", torch.bfloat16), torch.inference_mode()])
def test_a_kernel_that_would_not_run_in_the_example_is_not_placed(model, around) -> None:
    def example() -> None:
        with around:
            model(X)

    report = optimize_model(model, example=example)
    autocast = isinstance(around, torch.autocast)
    wanted = (
        "would not run in the example: autocast is enabled"
        if autocast
        else "is not faster with its kernel: 0."
    )
    assert wanted in reason(report, "blocks.0")


def test_every_form_of_a_modules_calls_counts_and_those_outside_the_domain_do_not(model) -> None:
    block = model.blocks[0]
    report = optimize_model(model, example=lambda: (block(torch.ones(17, 8)), block(X.double())))
    assert reason(report, "blocks.0") == (
        "its kernel would not run in the example: argument `x` has rows = 17, the kernel is for 1 to 16"
    )
    report.restore()
    report = optimize_model(block, example=lambda: block(x=X))
    assert "is not faster with its kernel" in reason(report, "")


COUNTING = """
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, 9.0))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        x *= 2
        return x * self.weight


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Scale()

    def forward(self, x):
        return self.block(x)
"""


def test_timing_leaves_buffers_alone(project) -> None:
    (project.path / "layers.py").write_text(COUNTING)
    domain = Domain(
        {"x": TensorSpec("float32", (4, 8))},
        {"weight": TensorSpec("float32", (8,)), "calls": TensorSpec("float32", ())},
    )
    project.verified(with_supports(kernel_text(), [domain]))
    model, x = project.layers().Model().eval(), torch.ones(4, 8)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    report = optimize_model(model, example=lambda: model(x))
    assert "is not faster" in reason(report, "block") or report.replaced
    assert model.block.calls <= before["block.calls"] + 1


def test_one_module_by_itself_and_nested_classes_are_found_too(project) -> None:
    text = MARKED.replace("import Scale", "import Outer").replace("(Scale,", "(Outer.Inner,")
    (project.path / "nested.py").write_text(text)
    inner = project.layers().Outer.Inner().eval()
    project.verified(kernel_text(), "nested.py", "Inner")
    report = optimize_model(inner)
    assert [each.path for each in report.replaced] == [""]
    assert runs_kernel(inner)
    assert "(the model)" in str(report)


# --------------------------------------------------------------------------- not replacing


def edit_source(project, model):
    text = (project.path / "layers.py").read_text()
    (project.path / "layers.py").write_text(text.replace("* self.weight + 1", "* self.weight + 1.0"))


def patch_class(project, model):
    project.layers().Scale.forward = lambda self, x: x


def patch_instance(project, model):
    model.blocks[0].forward = model.blocks[0].forward


def subclass(project, model):
    model.blocks[0] = type("Mine", (project.layers().Scale,), {})()


def forget_marker(project, model):
    (project.path / "marked.py").unlink()


def forbid_subclasses(project, model):
    def refuse(cls, **kwargs):
        raise ValueError("closed")

    project.layers().Scale.__init_subclass__ = classmethod(refuse)


REASONS = {
    "the source changed": (edit_source, "its source changed since its kernel was verified"),
    "the class was patched": (patch_class, "the forward of its class was replaced"),
    "the instance was patched": (patch_instance, "this instance has a forward of its own"),
    "another class": (subclass, "no kernel in the store"),
    "nobody marks it any more": (forget_marker, "no kernel in the store"),
    "a class that refuses subclasses": (
        forbid_subclasses,
        "no class can be derived from it (ValueError: closed)",
    ),
}


@pytest.mark.parametrize("case", REASONS)
def test_what_cannot_be_replaced_says_why(project, model, case) -> None:
    change, wanted = REASONS[case]
    change(project, model)
    report = optimize_model(model)
    assert reason(report, "blocks.0") == wanted


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        (
            {"environment": replace(HERE, torch="1.0")},
            f"its kernel was verified with torch 1.0, not {HERE.torch}",
        ),
        (
            {"environment": replace(HERE, triton="1.0")},
            f"its kernel was verified with triton 1.0, not {HERE.triton}",
        ),
        (
            {"environment": replace(HERE, policy="31"), "versions": {}},
            "its kernel was verified under other rules of the judge: it was given under policy 31, before each rule had a "
            "version of its own",
        ),
        (
            {"environment": replace(HERE, device="cuda", gpu="NVIDIA A100", arch="sm_80")},
            "its kernel was verified on NVIDIA A100 (sm_80), not Triton's interpreter",
        ),
        ({"verdict": "rejected"}, "no candidate for it was accepted"),
        ({"verdict": "rejected", "rule": "speed"}, "its verified kernels are not faster here"),
    ],
)
def test_kernels_that_are_not_verified_here_are_not_used(project, changed, wanted) -> None:
    project.verified(kernel_text(), **changed)
    report = optimize_model(project.layers().Model().eval())
    assert not report.replaced
    assert reason(report, "blocks.0") == wanted


@pytest.mark.parametrize("changed", [{"python": "3.99"}, {"driver": "1"}])
def test_python_and_driver_may_differ(project, changed) -> None:
    project.verified(kernel_text(), environment=replace(HERE, **changed))
    assert optimize_model(project.layers().Model().eval()).replaced


def test_a_class_of_equal_source_in_another_file_runs_the_same_kernel(project) -> None:
    text = LAYERS.replace(
        "class Scale", "from pytest_kernelllm import triton_candidate\n\n\n@triton_candidate\nclass Scale", 1
    )
    for name in ("layers", "kept"):
        (project.path / f"{name}.py").write_text(text)
    project.verified(kernel_text(), file="kept.py")
    assert len(optimize_model(project.layers().Model().eval()).replaced) == 3


def test_without_a_gpu_nothing_is_replaced(model, monkeypatch) -> None:
    monkeypatch.delenv("KERNELLLM_INTERPRET")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert reason(optimize_model(model), "blocks.0") == "there is no GPU here to run its kernel"


def test_kernels_that_are_switched_off_are_not_placed(model, monkeypatch) -> None:
    monkeypatch.setenv("KERNELLLM_DISABLE", "1")
    report = optimize_model(model)
    assert reason(report, "blocks.0") == "KERNELLLM_DISABLE is set"
    assert not runs_kernel(model.blocks[0])


def test_adopted_classes_are_left_alone(project, model) -> None:
    text = LAYERS.replace(
        "class Scale(",
        "from pytest_kernelllm import triton_candidate\n@triton_candidate(kernel='k')\nclass Scale(",
    )
    (project.path / "adopted.py").write_text(text)
    import adopted

    own = adopted.Model().eval()
    report = optimize_model(own)
    assert reason(report, "blocks.0") == "left alone: it has adopted k"
    assert type(own.blocks[0]) is adopted.Scale


def test_what_is_wrong_in_the_store_is_in_the_report(project, model) -> None:
    (entry,) = (project.path / ".kernelllm").glob("targets/*/verdicts/*.json")
    entry.write_text(entry.read_text()[:-20])
    report = optimize_model(model)
    assert not report.replaced
    assert "a damaged entry counts as missing" in str(report).splitlines()[-1]


def test_a_marker_that_is_gone_is_in_the_report(project, model) -> None:
    forget_marker(project, model)
    assert str(optimize_model(model)).endswith(
        "marked.py does not exist any more, so the store's kernels for Scale cannot be used."
    )


# --------------------------------------------------------------------------- wrong use


def test_wrong_use_is_one_sentence_and_changes_nothing(project, model, monkeypatch) -> None:
    with pytest.raises(TypeError, match=r"optimize_model takes an nn\.Module, not a type\.$"):
        optimize_model(nn.Linear)
    with pytest.raises(
        FileNotFoundError, match=r"There is no store .*/nowhere; `pytest --kernelllm` creates one"
    ):
        optimize_model(model, store=project.path / "nowhere")
    (project.path / "pyproject.toml").write_text("[tool.kernelllm]\nstroe = 'x'\n")
    with pytest.raises(ConfigError, match="has no setting `stroe`"):
        optimize_model(model)
    assert not runs_kernel(model.blocks[0])


def test_a_store_may_be_named_by_its_folder_from_anywhere(
    project, model, tmp_path_factory, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert not optimize_model(model).replaced
    for store in (project.path / ".kernelllm", str(project.path / ".kernelllm"), project.store):
        with optimize_model(model, store=store) as report:
            assert len(report.replaced) == 3


# --------------------------------------------------------------------------- undoing


def everything(model: nn.Module):
    """What a person could look at, by identity where it is an object."""
    return [
        (
            path,
            type(module),
            module.forward.__func__,
            {name: id(value) for name, value in vars(module).items()},
        )
        for path, module in model.named_modules()
    ]


def test_restore_gives_back_exactly_what_was_there(model) -> None:
    before, outputs = everything(model), model(X)
    report = optimize_model(model)
    assert everything(model) != before
    report.restore()
    assert everything(model) == before
    assert torch.equal(model(X), outputs)
    report.restore()
    assert everything(model) == before


def test_a_with_block_restores_also_when_it_fails(model) -> None:
    before = everything(model)
    with pytest.raises(ZeroDivisionError), optimize_model(model):
        assert runs_kernel(model.blocks[0])
        raise ZeroDivisionError
    assert everything(model) == before


def test_optimizing_twice_changes_nothing_and_each_report_undoes_its_own(model) -> None:
    before = everything(model)
    first = optimize_model(model)
    second = optimize_model(model)
    assert not second.replaced
    assert reason(second, "blocks.0") == "already optimized"
    second.restore()
    assert runs_kernel(model.blocks[0])
    first.restore()
    assert everything(model) == before


def test_what_changed_a_modules_class_later_has_to_be_undone_first(model) -> None:
    block = model.blocks[0]
    before = type(block)
    report = optimize_model(model)
    parametrize.register_parametrization(block, "weight", nn.Identity())
    with pytest.warns(
        KernelLLMWarning, match=r"^blocks\.0 became a ParametrizedScale after optimize_model; undo"
    ):
        report.restore()
    assert type(model.blocks[1]) is before
    parametrize.remove_parametrizations(block, "weight")
    report.restore()
    assert type(block) is before


def test_a_model_is_not_kept_alive_once_its_report_is_gone(model) -> None:
    report = optimize_model(model)
    assert runs_kernel(model.blocks[0])
    block = weakref.ref(model.blocks[0])
    del report
    model.blocks = nn.ModuleList()
    gc.collect()
    assert block() is None


# --------------------------------------------------------------------------- what modules go through


def test_the_state_and_looks_of_a_model_stay_the_same(model) -> None:
    state, shown = {name: id(t) for name, t in model.state_dict(keep_vars=True).items()}, repr(model)
    optimize_model(model)
    assert {name: id(t) for name, t in model.state_dict(keep_vars=True).items()} == state
    assert repr(model) == shown
    other = copy.deepcopy(model.state_dict())
    other["blocks.0.weight"].fill_(3.0)
    model.load_state_dict(other)
    assert runs_kernel(model.blocks[0])
    assert float(model.blocks[0](X)[0, 0].detach()) == 4.0, (
        "with gradients the original runs, on what was loaded"
    )


def test_deep_copies_run_the_kernel_on_weights_of_their_own(model) -> None:
    optimize_model(model)
    twin = copy.deepcopy(model)
    assert twin.blocks[0].weight is not model.blocks[0].weight
    twin.blocks[0].weight.data.fill_(5.0)
    assert runs_kernel(twin.blocks[0]) and runs_kernel(model.blocks[0])
    with torch.no_grad():
        assert float(twin.blocks[0](X)[0, 0]) == 105.0


def test_a_deep_copy_keeps_what_is_shared_shared(model) -> None:
    model.blocks[1] = model.blocks[0]
    optimize_model(model)
    twin = copy.deepcopy(model)
    assert twin.blocks[1] is twin.blocks[0] is not model.blocks[0]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_hold_the_original_classes(project, model, protocol) -> None:
    optimize_model(model)
    read = pickle.loads(pickle.dumps(model, protocol))
    assert type(read.blocks[0]) is project.layers().Scale
    assert torch.equal(read.blocks[0].weight, model.blocks[0].weight)
    assert not runs_kernel(read.blocks[0])
    assert runs_kernel(model.blocks[0])


def test_a_whole_model_saved_by_torch_is_read_without_us(project, model) -> None:
    optimize_model(model)
    file = io.BytesIO()
    torch.save(model, file)
    assert b"kernelllm" not in file.getvalue()
    read = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    assert type(read.blocks[0]) is project.layers().Scale


def test_replicas_run_the_kernel_on_weights_of_their_own(model) -> None:
    optimize_model(model)
    replica = model.blocks[0]._replicate_for_data_parallel()
    replica.weight = torch.full((8,), 7.0)
    with torch.no_grad():
        assert float(replica(X)[0, 0]) == 107.0
        assert float(model.blocks[0](X)[0, 0]) == 101.0


def test_hooks_and_moves_between_dtypes_go_on_as_before(model) -> None:
    block, seen = model.blocks[0], []
    block.register_forward_hook(lambda module, args, out: seen.append(float(out.detach()[0, 0])))
    optimize_model(model)
    assert runs_kernel(block)
    assert seen == [101.0]
    block.double()
    assert not runs_kernel(block, X.double())
    block.float()
    assert runs_kernel(block)


def test_modules_made_on_the_meta_device_run_the_kernel_once_they_have_memory(project, model) -> None:
    with torch.device("meta"):
        empty = project.layers().Scale().eval()
    optimize_model(empty)
    empty.to_empty(device="cpu")
    empty.weight.data.fill_(2.0)
    assert runs_kernel(empty)


def test_torch_compile_sees_the_original(model) -> None:
    optimize_model(model)
    block = model.blocks[0].requires_grad_(False)
    compiled = torch.compile(block, fullgraph=True, backend="eager")
    assert torch.equal(compiled(X), X * block.weight + 1)
    assert runs_kernel(block)


# --------------------------------------------------------------------------- kernels that fail

FAILING = BODY.replace("    out = torch", "    raise ValueError('no luck')\n    out = torch")


def test_a_kernel_that_raises_is_told_once_and_the_original_takes_over(project) -> None:
    kernel = project.verified(kernel_text(body=FAILING))
    model = project.layers().Model().eval()
    optimize_model(model)
    with torch.no_grad():
        with pytest.warns(
            KernelLLMWarning, match=f"Scale runs its original forward because {kernel} raised ValueErr"
        ):
            assert torch.equal(model.blocks[0](X), X * model.blocks[0].weight + 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(X)


def test_when_strict_a_kernel_that_raises_does(project, monkeypatch) -> None:
    monkeypatch.setenv("KERNELLLM_STRICT", "1")
    project.verified(kernel_text(body=FAILING))
    model = project.layers().Model().eval()
    optimize_model(model)
    with pytest.raises(ValueError, match="no luck"), torch.no_grad():
        model(X)


def test_a_kernel_runs_as_it_was_judged_whatever_became_of_its_file(project, model) -> None:
    (record,) = project.store.verdicts
    file = project.store.renderings.kernel(record.source_hash, record.verdict.kernel_hash)
    file.parent.mkdir()
    file.write_text(record.candidate.source.replace("+ 100", "+ 200"))
    optimize_model(model)
    with torch.no_grad():
        assert float(model.blocks[0](X)[0, 0]) == 101.0


def test_triton_can_read_the_source_of_a_kernel_that_is_in_no_file() -> None:
    text = kernel_text()
    forward = TextKernel("Scale", "0" * 64, text).forward
    assert inspect.getsource(forward) in text
    assert inspect.getsource(forward.__globals__["scale_kernel"].fn) in text


@pytest.mark.parametrize("comment", ["#\u2028" * 2, "# \x0c\x85", "# \x1c\r# \r\n#"])
def test_triton_reads_the_lines_that_python_runs(comment) -> None:
    """A character that ends a line only for some readers would give a kernel the text of another function."""
    text = f"{comment}\n{kernel_text()}"
    kernel = TextKernel("Scale", "0" * 64, text).forward.__globals__["scale_kernel"].fn
    assert inspect.getsource(kernel) in text
    assert inspect.getsource(kernel).startswith("@triton.jit\ndef scale_kernel(")


# --------------------------------------------------------------------------- placing elsewhere


@pytest.fixture
def saved(model, tmp_path) -> Path:
    """What ``optimize_model`` chose for the model, in a file; the model itself is restored."""
    with optimize_model(model) as report:
        report.save(tmp_path / "kernels.json")
    (tmp_path / ".kernelllm").rename(tmp_path / "elsewhere")
    return tmp_path / "kernels.json"


def test_saved_kernels_are_placed_without_a_store(project, model, saved) -> None:
    placement = place_kernels(model, saved)
    assert placement.kernels.keys() == {"blocks.0", "blocks.1", "blocks.2"}
    assert "has shape (9,)" in placement.reasons.pop("wide") and not placement.reasons
    assert all(map(runs_kernel, model.blocks)) and not runs_kernel(model.blocks[0], torch.ones(17, 8))
    assert place_kernels(model, saved).reasons["blocks.0"] == "already optimized"
    placement.restore()
    assert type(model.blocks[0]) is project.layers().Scale and not runs_kernel(model.blocks[0])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda d: d["environment"].update(gpu="NVIDIA H200 (sm_90)"),
            "for gpu NVIDIA H200 \\(sm_90\\), not Triton's",
        ),
        (lambda d: d["environment"].update(torch="2.0.0"), "for torch 2.0.0, not"),
        (
            lambda d: d["kernels"][0].update(digest="0" * 16),
            "its source is not what its kernel was verified for",
        ),
        (lambda d: d["kernels"][0].update(digest=""), "its source is not what its kernel was verified for"),
    ],
)
def test_saved_kernels_are_not_placed_where_they_were_not_verified(model, saved, change, reason) -> None:
    document = json.loads(saved.read_text())
    change(document)
    saved.write_text(json.dumps(document))
    placement = place_kernels(model, saved)
    assert not placement.kernels and re.search(reason, placement.reasons["blocks.0"])
    assert not runs_kernel(model.blocks[0])


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1, "kernels": [{"cls": 1}]}'])
def test_a_file_of_another_form_is_refused_in_one_sentence(model, tmp_path, text) -> None:
    (tmp_path / "kernels.json").write_text(text)
    with pytest.raises(ValueError, match=r"kernels\.json is not a file that OptimizeReport\.save wrote"):
        place_kernels(model, tmp_path / "kernels.json")
