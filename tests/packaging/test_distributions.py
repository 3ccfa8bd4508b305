"""The three distributions of this repository: what they require, and the runtime and the judge alone beside torch."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from installed import TORCH, build, environment
from projects import COMMAND
from try_wheels import ANSWER, REFERENCE

import kernelllm_judge
import kernelllm_runtime
import pytest_kernelllm

ROOT = Path(__file__).parents[2]
ADOPTED = ("SwiGLU", "RMSNorm")
SIBLINGS = ("kernelllm_runtime", "kernelllm_judge")


def test_all_distributions_have_one_version() -> None:
    assert pytest_kernelllm.__version__ == kernelllm_judge.__version__ == kernelllm_runtime.__version__
    [runtime, *others] = dependencies("kernelllm_judge")
    assert runtime == f"kernelllm-runtime=={kernelllm_runtime.__version__}"
    assert not any("kernelllm" in name for name in others)


def dependencies(folder: str) -> list[str]:
    found: list[str] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"][
        "dependencies"
    ]
    return found


def test_the_runtime_imports_only_the_standard_library_and_torch() -> None:
    assert imports("kernelllm_runtime") == {"kernelllm_runtime", "torch"}
    assert dependencies("kernelllm_runtime") == []


def test_the_judge_imports_only_what_it_requires() -> None:
    ours = {"kernelllm_judge", "kernelllm_runtime"}
    # mcp and yaml: extras, for `kernelllm-judge mcp` and for folders with a task.yml only
    assert imports("kernelllm_judge") == {*ours, "pynvml", "torch", "triton", "numpy", "mcp", "yaml"}


def imports(folder: str) -> set[str]:
    imported = {
        name.partition(".")[0]
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for name in _modules(node)
    }
    return imported - sys.stdlib_module_names


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


@pytest.mark.parametrize("marker", ["kernelllm_runtime", "pytest_kernelllm"])
def test_the_marker_imports_nothing_heavy(marker: str) -> None:
    program = (
        f"import sys; from {marker} import triton_candidate\n"
        "assert not {n.partition('.')[0] for n in sys.modules} & "
        "{'torch', 'triton', 'numpy', 'pytest', 'rich', 'pynvml', 'filelock'}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build of this repository reads."""
    folder = tmp_path_factory.mktemp("a checkout") / "repository"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in (*SIBLINGS, "pytest_kernelllm", "hooks"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def requires(metadata: bytes) -> list[str]:
    lines = metadata.decode().splitlines()
    return [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: kernelllm")]


def of_wheel(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        assert not any(name.startswith(SIBLINGS) for name in archive.namelist() if ".dist-info" not in name)
        return requires(archive.read(name))


@pytest.mark.slow
def test_a_checkout_installs_what_lies_in_it_and_a_release_the_same_version(
    checkout: Path, tmp_path: Path
) -> None:
    names = [folder.replace("_", "-") for folder in SIBLINGS]
    pins = [f"{name}=={pytest_kernelllm.__version__}" for name in names]
    beside = [
        f"{name} @ {(checkout / folder).as_uri()}" for name, folder in zip(names, SIBLINGS, strict=True)
    ]
    assert of_wheel(build(checkout, tmp_path / "direct")) == beside
    command = [sys.executable, "-m", "build", "--outdir", str(tmp_path / "release")]
    for folder in (*SIBLINGS, "."):  # a wheel is built from its sdist, where the folders beside are missing
        subprocess.run([*command, str(checkout / folder)], check=True, capture_output=True)
    built = {path.name for path in (tmp_path / "release").glob("*.whl")}
    version = pytest_kernelllm.__version__
    assert built == {f"{name}-{version}-py3-none-any.whl" for name in (*SIBLINGS, "pytest_kernelllm")}
    [sdist], [wheel] = (list((tmp_path / "release").glob(f"pytest_*.{kind}")) for kind in ("tar.gz", "whl"))
    assert of_wheel(wheel) == pins
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        assert not any(name.startswith(SIBLINGS) for name in names)
        [info] = [name for name in archive.getnames() if name.endswith("/PKG-INFO")]
        stored = archive.extractfile(info)
        assert stored is not None
        assert requires(stored.read()) == pins


RUN = """
import sys
import torch
from kernelllm_runtime import explain
from llm_blocks.activations import SwiGLU
from llm_blocks.norms import RMSNorm

torch.set_num_threads(1)
x, y, wide = torch.randn(1, 2, 64), torch.randn(1, 2, 64), torch.randn(1, 2, 4096)
for module, inputs in ((SwiGLU(), (x, y)), (RMSNorm(4096), (wide,))):
    module = module.eval().requires_grad_(False)
    print(explain(module, *inputs))
    original = type(module).forward.__kernelllm_original__
    assert torch.allclose(module(*inputs), original(module, *inputs), atol=1e-5)
    assert type(module).forward.__kernelllm_dispatcher__.off is None
assert not {name.partition(".")[0] for name in sys.modules} & {"pytest", "_pytest", "pytest_kernelllm", "rich"}
"""


@pytest.mark.slow
def test_adopted_examples_run_where_only_torch_and_the_runtime_are_installed(tmp_path: Path) -> None:
    """Marked with the runtime's own marker, from verified candidates to kernels that run without pytest."""
    project = tmp_path / "project"
    shutil.copytree(
        ROOT / "examples" / "llm_blocks",
        project,
        ignore=shutil.ignore_patterns("__pycache__", ".kernelllm", "tests"),
    )
    session = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--kernelllm-only",
        "--kernelllm-samples=1",
    ]
    done = subprocess.run(
        [
            *session,
            "-k",
            "SwiGLU or RMSNorm and not Residual",
            "llm_blocks/activations.py",
            "llm_blocks/norms.py",
        ],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    applied = subprocess.run([*COMMAND, "apply"], cwd=project, capture_output=True, text=True, check=True)
    assert applied.stdout.count("applied ") == len(ADOPTED), applied.stdout
    changed = (project / "llm_blocks" / "norms.py").read_text()
    assert "from kernelllm_runtime import triton_candidate" in changed and "kernel=" in changed

    alone = environment(tmp_path / "alone", TORCH, build(ROOT / "kernelllm_runtime", tmp_path / "wheels"))
    ran = run(alone, "-c", RUN, cwd=project, KERNELLLM_INTERPRET="1", TRITON_INTERPRET="1")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(" runs the kernel ") == len(ADOPTED), ran.stdout
    assert "Warning" not in ran.stderr


def run(python: Path, *arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs an interpreter of a fresh environment, without anything of this one."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return subprocess.run(
        [python, *arguments], cwd=cwd, env=kept | environ, capture_output=True, text=True, check=False
    )


FROM_PYTHON = """
import sys
from pathlib import Path
import torch
from kernelllm_judge import adopt, judge

judged = judge(torch.nn.ReLU, Path("relu.py"), cases=torch.randn(16, 100))
print(judged.verdict.verdict, judged.verdict.reason)
assert judge("reference.py", Path("answer.py"), timing=False).accepted
assert not {name.partition(".")[0] for name in sys.modules} & {"pytest", "_pytest", "pytest_kernelllm"}
"""


@pytest.mark.slow
def test_a_pair_is_judged_where_only_torch_the_judge_and_the_runtime_are_installed(tmp_path: Path) -> None:
    built = [build(ROOT / folder, tmp_path / folder) for folder in SIBLINGS]
    python = environment(tmp_path / "alone", (*TORCH, "nvidia-ml-py"), *built)
    absent = (
        "import importlib.util as u; print([u.find_spec(n) for n in ('pytest', 'pytest_kernelllm', 'rich')])"
    )
    assert run(python, "-c", absent, cwd=tmp_path).stdout == "[None, None, None]\n"
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "constant.py").write_text(REFERENCE.replace("torch.relu(x)", "torch.zeros_like(x)"))
    (tmp_path / "ones.py").write_text(ANSWER.replace("0.0, x) + 1.0", "1.0, 1.0)"))
    (tmp_path / "answer.py").write_text(ANSWER)
    (tmp_path / "wrong.py").write_text(ANSWER.replace("+ 1.0", "+ 2.0"))
    (tmp_path / "relu.py").write_text(ANSWER.replace(" + 1.0", ""))

    command = str(python.parent / "kernelllm-judge")
    right = run(python, command, "reference.py", "answer.py", "--json", "--write", "kernel.py", cwd=tmp_path)
    assert right.returncode == 0, right.stderr
    assert json.loads(right.stdout)["verdict"] == "accepted" and right.stdout.count("\n") == 1
    assert "imported" in right.stderr
    again = run(python, command, "reference.py", "kernel.py", "--no-timing", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, "accepted\n")
    wrong = run(python, command, "reference.py", "wrong.py", cwd=tmp_path)
    assert wrong.returncode == 1 and wrong.stdout.startswith("rejected: output 0 "), wrong.stdout
    assert wrong.stdout.endswith(" (rule: values)\n")
    open_ = run(python, command, "constant.py", "ones.py", cwd=tmp_path)
    assert open_.returncode == 3 and open_.stdout.startswith("inconclusive: "), open_.stdout
    for arguments, sentence in (
        (("gone.py", "answer.py"), "There is no file gone.py."),
        (("reference.py", "gone.py"), "there is no file gone.py."),
        (("answer.py", "answer.py"), "answer.py is not in KernelBench's form"),
    ):
        unusable = run(python, command, *arguments, cwd=tmp_path)
        assert unusable.returncode == 2 and unusable.stdout == ""
        assert sentence in unusable.stderr and unusable.stderr.count("\n") == 1

    assert "name: kernelllm-judge" in run(python, command, "skill", cwd=tmp_path).stdout
    served = run(python, command, "mcp", cwd=tmp_path)
    assert (served.returncode, served.stdout) == (2, "") and "mcp is not installed" in served.stderr

    python_api = run(python, "-c", FROM_PYTHON, cwd=tmp_path)
    assert python_api.returncode == 0, python_api.stderr
    assert python_api.stdout == "accepted \nimported\n"
