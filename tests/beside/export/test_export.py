"""Exports, loaded and run by the real ``kernels`` library (on CPU tensors, in Triton's interpreter)."""

import ast
import json
import subprocess
import sys
import warnings
from pathlib import Path

import kernels
import pytest
import torch
from exported import CPU, H200, adds, kernel_source, kernelized, make_project
from kernels._rust import Digest, DigestAlgorithm, Metadata
from projects import LAYERS

from kernelllm_judge.core.kernel_module import with_supports
from kernelllm_judge.target.live import load_target

VARIANT = Path("hf") / "build" / "torch-cuda"
X = torch.randn(6, 64)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setenv("KERNELLLM_INTERPRET", "1")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.delenv("KERNELLLM_STRICT", raising=False)
    monkeypatch.delenv("KERNELLLM_STORE_KEY", raising=False)


@pytest.fixture
def project(tmp_path, monkeypatch):
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def exported(project):
    project.verified()
    done = project.export()
    assert done.returncode == 0, done.stderr
    return project


def load(project, mode=kernels.Mode.INFERENCE, **changes):
    """An instance of the project's class, kernelized."""
    module = project.layers.Scale(64).eval()
    return kernelized(module, project.root / VARIANT, "cpu", mode)


def text_of(project, name: str) -> str:
    return (project.root / VARIANT / name).read_text()


# ------------------------------------------------------------------ the real library


def test_an_export_loads_and_runs_its_kernel(exported):
    module = load(exported)
    assert adds(module, X) == 2.0
    with torch.no_grad():
        assert torch.equal(module(X), X * module.weight + 2)
    assert list(module.state_dict()) == ["weight"]


@pytest.mark.parametrize(
    "outside",
    [
        lambda module: (module.train(), X),
        lambda module: (module.double(), X.double()),
        lambda module: (module, torch.randn(65, 64)),
        lambda module: (module, torch.randn(64, 6).t()),
        lambda module: (module, X.requires_grad_(False).as_subclass(torch.nn.Parameter)[:0]),
    ],
    ids=["train mode", "another dtype", "too many rows", "strides", "no rows"],
)
def test_outside_the_verified_domain_the_modules_own_forward_runs(exported, outside):
    module, x = outside(load(exported))
    with torch.no_grad():
        assert torch.equal(module(x), type(module).forward(module, x))


KEPT = (
    LAYERS.replace(
        "weight = nn.Parameter(torch.ones(width))",
        "weight = nn.Parameter(torch.ones(width)); self.table = {'add': [1]}; self.register_buffer('on', torch.tensor(True))",
    )
    .replace("return x * self.weight + 1", "return x * self.weight + self.table['add'][0] * self.on + SHIFT")
    .replace("def rows", "SHIFT = 0\n\n\ndef rows")
)


def test_a_module_in_another_state_than_the_verified_one_runs_its_own_forward(tmp_path, monkeypatch):
    project = make_project(tmp_path, monkeypatch, KEPT)
    domain = load_target(project.root, project.target).cases[0].domain
    monkeypatch.setattr(
        "exported.kernel_source", lambda *given: with_supports(kernel_source(*given), [domain])
    )
    project.verified()
    assert project.export().returncode == 0
    module = load(project)
    assert adds(module, X) == 2.0
    module.table["add"][0] = 7
    assert adds(module, X) == 7.0
    module.table["add"][0] = 1
    module.on.fill_(False)
    assert adds(module, X) == 0.0
    module.on.fill_(True)
    assert adds(module, X) == 2.0
    project.layers.SHIFT = 3
    assert adds(module, X) == 4.0


def test_gradients_flow_through_the_modules_own_forward(exported):
    module = load(exported)
    module(X).sum().backward()
    assert torch.allclose(module.weight.grad, X.sum(0), atol=1e-5)
    assert adds(module, X) == 2.0


def test_for_training_and_for_the_compiler_the_library_keeps_the_original(exported):
    for mode in (kernels.Mode.TRAINING, kernels.Mode.INFERENCE | kernels.Mode.TORCH_COMPILE):
        module = load(exported, mode)
        assert adds(module, X) == 1.0
        assert module.forward.__func__ is type(module).forward


def test_a_kernelized_module_compiles_as_the_original(exported):
    module = load(exported)
    with torch.no_grad():
        compiled = torch.compile(module, backend="eager", fullgraph=True)(X)
    assert torch.equal(compiled, X * module.weight.detach() + 1)
    assert adds(module, X) == 2.0


def test_another_class_under_the_same_layer_name_is_left_alone(exported, tmp_path, monkeypatch):
    other = make_project(tmp_path, monkeypatch, LAYERS.replace("+ 1", "+ 7"))
    module = kernelized(other.layers.Scale(64).eval(), exported.root / VARIANT, "cpu")
    with pytest.warns(UserWarning, match="Scale runs its original forward because its source is not what"):
        assert adds(module, X) == 7.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adds(module, X) == 7.0, "said once"


def test_a_subclass_and_a_replaced_method_are_left_alone(project):
    project.file.write_text(LAYERS.replace("x * self.weight + 1", "self.scaled(x) + 1") + METHOD)
    project.verified()
    assert project.export().returncode == 0
    module = load(project)
    assert adds(module, X) == 2.0
    module.scaled = lambda x: x * module.weight * 0 + 4
    with torch.no_grad():
        assert float(module(X).mean()) == 5.0
    child = type("Child", (project.layers.Scale,), {"scaled": lambda self, x: x * 0 + 6})(64).eval()
    with torch.no_grad(), pytest.warns(UserWarning, match="verified against Scale, another class"):
        assert float(kernelized(child, project.root / VARIANT, "cpu")(X).mean()) == 7.0


METHOD = """
    def scaled(self, x):
        return x * self.weight
"""


def test_an_edited_kernel_does_not_run(exported):
    path = exported.root / VARIANT / "scale_kernel.py"
    path.write_text(path.read_text().replace("+ 2)", "+ 3)"))
    with pytest.warns(UserWarning, match="not the file that was exported"):
        assert adds(load(exported), X) == 1.0


def test_a_kernel_that_raises_gives_way_once_and_for_all(project, monkeypatch):
    source = kernel_source(project.target.source_hash).replace("    return out", "    raise ValueError('no')")
    (project.root / "adopted_kernel.py").write_text(restamped(source))
    project.file.write_text(LAYERS.replace("dims=", 'kernel="adopted_kernel", dims='))
    assert project.export().returncode == 0
    monkeypatch.setenv(
        "KERNELLLM_DISABLE", "1"
    )  # the adopting class's own dispatcher, which is not under test
    project.layers.Scale(64).eval()(X)
    monkeypatch.delenv("KERNELLLM_DISABLE")
    module = load(project)
    with pytest.warns(UserWarning, match="scale_kernel raised ValueError: no"):
        assert adds(module, X) == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adds(module, X) == 1.0


def restamped(source: str) -> str:
    from kernelllm_judge.core.kernel_module import stamped

    return stamped(source)


def test_a_layer_by_itself_says_what_it_is_for(exported):
    layer = kernels.LocalLayerRepository(exported.root / VARIANT, layer_name="Scale").load()
    with pytest.raises(TypeError, match=r"Scale is a layer for kernels\.kernelize"):
        layer()(X)


def test_on_a_machine_without_cuda_the_library_finds_no_variant(exported):
    if torch.version.cuda:
        pytest.skip("this torch is built for CUDA")
    with pytest.raises(FileNotFoundError, match="torch-cuda"):
        kernels.LocalLayerRepository(exported.root / "hf", layer_name="Scale").load()


def test_an_export_needs_nothing_of_this_package(exported):
    for path in (exported.root / VARIANT).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any("kernelllm" in name for name in names), path.name


def test_the_libraries_own_digest_and_metadata_hold(exported):
    variant = exported.root / VARIANT
    metadata = Metadata.read_from_file(variant / "metadata.json")
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))
    assert (metadata.version, metadata.license, metadata.python_depends) == (1, "other", [])
    assert metadata.backend.archs is None, "it was never on a GPU"


# ------------------------------------------------------------------ what is exported


def test_the_kernel_is_byte_for_byte_the_one_that_was_judged(exported):
    assert text_of(exported, "scale_kernel.py") == kernel_source(exported.target.source_hash)


def test_the_fastest_of_those_seen_on_a_gpu_is_taken(project):
    for added, environment, speedup in ((2, CPU, 0.0), (3, H200, 1.2), (4, H200, 1.5), (5, H200, 1.3)):
        project.verified(added, environment, speedup)
    project.verified(6, H200, 9.0, status="rejected")
    assert project.export("--license", "apache-2.0", "--version", "3").returncode == 0
    assert "+ 4)" in text_of(project, "scale_kernel.py")
    metadata = Metadata.read_from_file(project.root / VARIANT / "metadata.json")
    assert (metadata.version, metadata.license, metadata.backend.archs) == (3, "apache-2.0", ["9.0"])
    readme = (project.root / "hf" / "README.md").read_text()
    assert "NVIDIA H200, driver 570.1, torch 2.13.0, triton 3.7.1" in readme and "1.50× (1.40–1.60)" in readme


def test_an_adopted_kernel_goes_before_the_stores_unless_it_is_stale_or_edited(project):
    project.verified(2)
    kernel = project.root / "adopted_kernel.py"
    kernel.write_text(kernel_source(project.target.source_hash, 8))
    project.file.write_text(LAYERS.replace("dims=", 'kernel="adopted_kernel", dims='))
    assert project.export().returncode == 0
    assert "+ 8)" in text_of(project, "scale_kernel.py")
    assert "when it was adopted" in (project.root / "hf" / "README.md").read_text()
    kernel.write_text(kernel.read_text().replace("+ 8)", "+ 9)"))
    assert project.export().returncode == 0
    assert "+ 2)" in text_of(project, "scale_kernel.py")


def test_without_a_verified_kernel_nothing_is_written(project):
    project.verified(status="rejected")
    done = project.export()
    assert done.returncode == 1
    assert (
        "left out: " in done.stderr
        and "it has no adopted kernel, and the store has no verified one" in done.stderr
    )
    assert not (project.root / "hf").exists()
    assert "Traceback" not in done.stderr


def test_a_verified_kernel_for_another_source_is_none(project):
    project.verified()
    project.file.write_text(LAYERS.replace("+ 1", "+ 7"))
    assert project.export().returncode == 1


def test_an_unsigned_verdict_is_not_exported_where_there_is_a_key(project, monkeypatch):
    project.verified()
    monkeypatch.setenv("KERNELLLM_STORE_KEY", "a-key-that-only-the-trusted-job-has")
    done = project.export()
    assert done.returncode == 1 and "did not sign" in done.stderr


SIGNATURES = {
    "defaults": "self, x, scale=1.0, name='a\"b', mask=None",
    "keyword only": "self, x, *, scale=1.0",
    "variable": "self, x, *others, **more",
    "positional only": "self, x, /, scale: float = 1.0",
}


@pytest.mark.parametrize("signature", SIGNATURES)
def test_a_layer_has_the_originals_signature(project, signature):
    project.file.write_text(LAYERS.replace("def forward(self, x)", f"def forward({SIGNATURES[signature]})"))
    project.verified()
    done = project.export()
    assert done.returncode == 0, done.stderr
    module = load(project)
    assert adds(module, X) == 2.0
    more = {"defaults": {"scale": 2.0}, "keyword only": {"scale": 2.0}, "variable": {"k": 1}}
    with torch.no_grad():
        assert torch.equal(module(X, **more.get(signature, {"scale": 2.0})), X * module.weight + 1)


def test_a_default_that_cannot_be_repeated_is_a_reason(project):
    text = LAYERS.replace("def forward(self, x)", "def forward(self, x, dtype=torch.float32)")
    project.file.write_text(text)
    project.verified()
    done = project.export()
    assert done.returncode == 1 and "the default of `dtype` is torch.float32" in done.stderr


def test_two_classes_of_one_name_do_not_fit_into_one_export(project):
    project.verified()
    other = project.root / "other.py"
    other.write_text(LAYERS)
    from exported import Project

    Project(project.root, "other").verified()
    done = project.export()
    assert done.returncode == 2 and "would both become the layer Scale" in done.stderr
    assert not (project.root / "hf").exists()
    assert project.export("--only", "other.py::Scale").returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--name", "Not A Name"),
        ("--license", "a b"),
        ("--version", "0"),
        ("--only", "nowhere.py"),
        ("--only", "x.py::A"),
    ],
)
def test_wrong_use_is_one_sentence(project, arguments):
    done = project.export(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("kernelllm: ") and done.stderr.count("\n") == 1


# ------------------------------------------------------------------ the folder


def test_the_checksums_hold_also_after_it_was_used(exported, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    adds(load(exported), X)
    command = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    assert subprocess.run(command, cwd=exported.root / "hf", check=False).returncode == 0


@pytest.mark.parametrize("line", ["../../etc/passwd", "/etc/passwd", "a/../../b", "x\x00y"])
def test_checksums_lead_nowhere_else(exported, line):
    sums = exported.root / "hf" / "SHA256SUMS"
    sums.write_text(sums.read_text() + f"{'0' * 64}  {line}\n")
    done = exported.export()
    assert done.returncode == 2 and "has an invalid line" in done.stderr


def test_an_export_takes_the_place_of_the_one_before_and_leaves_other_files(exported):
    hf = exported.root / "hf"
    (hf / ".gitattributes").write_text("*.bin filter=lfs\n")
    exported.verified(4, H200, 1.5)
    assert exported.export().returncode == 0
    assert "+ 4)" in text_of(exported, "scale_kernel.py")
    assert (hf / ".gitattributes").exists()


def test_an_export_overwrites_nothing_that_it_did_not_write(exported):
    readme = exported.root / "hf" / "README.md"
    readme.write_text("my own words\n")
    done = exported.export()
    assert done.returncode == 2 and "README.md would be overwritten" in done.stderr
    assert readme.read_text() == "my own words\n"


def test_an_unwritable_folder_is_one_sentence(project):
    project.verified()
    (project.root / "hf").write_text("a file")
    done = project.export()
    assert done.returncode == 2 and "cannot be written" in done.stderr and "Traceback" not in done.stderr


def test_metadata_is_the_same_for_the_same_kernels(exported):
    before = json.loads(text_of(exported, "metadata.json"))
    assert exported.export().returncode == 0
    assert json.loads(text_of(exported, "metadata.json")) == before
