"""Adopted modules as they are deployed: in a zip archive, under ``python -O``, without source, by ``torch.package``."""

import os
import py_compile
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from adopting import MODULE, kernel_text

PACKAGE = {
    "pkg/__init__.py": "",
    "pkg/adopted.py": MODULE.replace('"_triton.shift"', '"pkg._triton.shift"').replace(
        "from pytest_kernelllm import", "from kernelllm_runtime import"
    ),
    "pkg/_triton/__init__.py": "",
    "pkg/_triton/shift.py": kernel_text(source_hash="0" * 64).replace("adopted.Inner", "pkg.adopted.Inner"),
}
# The marker's file has its place in the project, so the kernel would be stale if its source could be read.
PACKAGE["pkg/_triton/shift.py"] = PACKAGE["pkg/_triton/shift.py"].replace(
    "for adopted.py", "for pkg/adopted.py"
)

CALL = """
import sys, warnings
import torch
from kernelllm_runtime import explain
warnings.simplefilter("always")
torch.set_num_threads(1)
x = torch.ones(4, 8)

def call(cls):
    module = cls().eval().requires_grad_(False)
    print(explain(module, x))
    print("kernel" if module(x).max() > 50 else "original")
    print(*sorted({name.partition(".")[0] for name in sys.modules} & {"pytest", "pytest_kernelllm", "rich"}))
"""
IMPORTED = CALL + "from pkg.adopted import Shift\ncall(Shift)\n"


@pytest.fixture
def run(tmp_path):
    """Runs a program that finds the package under a path, and returns what it printed and warned."""

    def run(program: str, path: str, *options: str) -> str:
        done = subprocess.run(
            [sys.executable, *options, "-c", textwrap.dedent(program)],
            env={**os.environ, "KERNELLLM_INTERPRET": "1", "TRITON_INTERPRET": "1", "PYTHONPATH": path},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


def lay_out(folder: Path, files: dict[str, str] = PACKAGE) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def zipped(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as target:
        for file in sorted(folder.rglob("*.py*")):
            target.write(file, file.relative_to(folder))
    return archive


def test_kernels_run_from_a_zip_archive_and_without_assertions_and_docstrings(run, tmp_path) -> None:
    lay_out(tmp_path / "tree")
    printed = run(IMPORTED, str(zipped(tmp_path / "app.zip", tmp_path / "tree")), "-OO")
    assert printed.splitlines() == [
        "Shift runs the kernel pkg._triton.shift: the call is inside its verified domain.",
        "kernel",
        "",
    ]


def test_without_the_kernel_s_source_the_original_runs(run, tmp_path) -> None:
    """As in an application that was frozen to bytecode."""
    lay_out(tmp_path / "tree")
    for file in (tmp_path / "tree").rglob("*.py"):
        py_compile.compile(str(file), cfile=str(file.with_suffix(".pyc")), doraise=True)
        file.unlink()
    printed = run(IMPORTED, str(zipped(tmp_path / "app.zip", tmp_path / "tree")))
    assert (
        "shift.pyc has no source, which Triton compiles; deploy the .py file of the kernel module" in printed
    )
    assert printed.splitlines()[-2] == "original"
    assert printed.count("KernelLLMWarning") == 1


def test_torch_package_and_exported_programs_run_the_original(run, tmp_path) -> None:
    """``torch.package`` renames every class that it loads; an exported program contains the original's operations."""
    lay_out(tmp_path / "tree")
    program = """
from pkg.adopted import Shift
from torch.package import PackageExporter, PackageImporter
with PackageExporter("model.pt") as exporter:
    exporter.extern(["kernelllm_runtime.**"])
    exporter.intern("pkg.**")
    exporter.save_pickle("model", "model.pkl", Shift())
call(type(PackageImporter("model.pt").load_pickle("model", "model.pkl")))
module = Shift().eval().requires_grad_(False)
torch.export.save(torch.export.export(module, (x,)), "model.pt2")
print("exported", torch.export.load("model.pt2").module()(x).max().item())
"""
    printed = run(CALL + program, str(tmp_path / "tree"))
    assert "torch.package renames classes" in printed
    assert printed.count("KernelLLMWarning") == 1
    assert printed.splitlines()[-3:] == ["original", "", "exported 2.5"]
