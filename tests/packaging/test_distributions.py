"""The two distributions of this repository: what they require, and the runtime alone beside torch."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from projects import COMMAND
from torch_only import build, torch_only

import kernelllm_runtime
import pytest_kernelllm

ROOT = Path(__file__).parents[2]
ADOPTED = ("SwiGLU", "RMSNorm")


def test_both_distributions_have_one_version() -> None:
    assert pytest_kernelllm.__version__ == kernelllm_runtime.__version__


def test_the_runtime_imports_only_the_standard_library_and_torch() -> None:
    imported = {
        name.partition(".")[0]
        for file in (ROOT / "kernelllm_runtime").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for name in _modules(node)
    }
    assert imported - sys.stdlib_module_names == {"kernelllm_runtime", "torch"}
    assert (
        tomllib.loads((ROOT / "kernelllm_runtime" / "pyproject.toml").read_text())["project"]["dependencies"]
        == []
    )


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
    for name in ("kernelllm_runtime", "pytest_kernelllm", "hooks"):
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
        assert not any(name.startswith("kernelllm_runtime/") for name in archive.namelist())
        return requires(archive.read(name))


@pytest.mark.slow
def test_a_checkout_installs_its_own_runtime_and_a_release_the_same_version(
    checkout: Path, tmp_path: Path
) -> None:
    pin = [f"kernelllm-runtime=={pytest_kernelllm.__version__}"]
    beside = (checkout / "kernelllm_runtime").as_uri()
    assert of_wheel(build(checkout, tmp_path / "direct")) == [f"kernelllm-runtime @ {beside}"]
    command = [sys.executable, "-m", "build", str(checkout), "--outdir", str(tmp_path / "release")]
    subprocess.run(command, check=True, capture_output=True)
    [sdist], [wheel] = (list((tmp_path / "release").glob(f"*.{kind}")) for kind in ("tar.gz", "whl"))
    assert of_wheel(wheel) == pin
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        assert not any(name.startswith("kernelllm_runtime/") for name in names)
        [info] = [name for name in archive.getnames() if name.endswith("/PKG-INFO")]
        stored = archive.extractfile(info)
        assert stored is not None
        assert requires(stored.read()) == pin


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
    for file in (project / "llm_blocks").glob("*.py"):
        file.write_text(
            file.read_text().replace("from pytest_kernelllm import", "from kernelllm_runtime import")
        )
    run = [
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
            *run,
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

    alone = torch_only(tmp_path / "alone", build(ROOT / "kernelllm_runtime", tmp_path / "wheels"))
    assert not (alone / "pytest").exists() and not (alone / "pytest_kernelllm").exists()
    ran = subprocess.run(
        [sys.executable, "-S", "-c", RUN],
        cwd=project,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("KERNELLLM_")},
            "PYTHONPATH": f"{alone}{os.pathsep}{project}",
            "KERNELLLM_INTERPRET": "1",
            "TRITON_INTERPRET": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(" runs the kernel ") == len(ADOPTED), ran.stdout
    assert "Warning" not in ran.stderr
