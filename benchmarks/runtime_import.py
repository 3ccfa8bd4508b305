"""What production code imports: `kernelllm-runtime` beside the whole package, in milliseconds and bytes.

Every round starts one interpreter for each way, one after the other, so that all meet the same machine; an
interpreter that imports nothing is subtracted. Times are those of the CPU, user and system, so that other work on the
machine adds little. Size counts the files that are installed, without bytecode.

    python benchmarks/runtime_import.py [--rounds 15]
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import kernelllm_runtime
import pytest_kernelllm
from kernelllm_judge.core.kernel_module import Provenance, compose
from kernelllm_judge.core.records import Domain, TensorSpec

BESIDE = (
    "pytest",
    "pluggy",
    "iniconfig",
    "packaging",
    "pygments",
    "rich",
    "markdown-it-py",
    "mdurl",
    "filelock",
)
ALSO = ("cloudpickle", "nvidia-ml-py", "ruff")
"""What pip installs with pytest-kernelllm."""

ADOPTED = """
import torch
from torch import nn
from kernelllm_runtime import triton_candidate

@triton_candidate(kernel="norm_kernel")
class Norm(nn.Module):
    def forward(self, x):
        return x
"""

WAYS = {
    "an interpreter": "pass",
    "from kernelllm_runtime import triton_candidate": "from kernelllm_runtime import triton_candidate",
    "from pytest_kernelllm import triton_candidate": "from pytest_kernelllm import triton_candidate",
    "the plugin, as a session of pytest loads it": "import pytest, pytest_kernelllm.plugin.hooks",
    "torch": "import torch",
    "torch and an adopted class": "import adopted",
    "torch, an adopted class, and its first call": "import adopted, torch; adopted.Norm()(torch.ones(4, 8))",
}


def seconds(program: str, folder: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def adopt(folder: Path) -> None:
    """A class with a kernel that launches nothing; without a GPU its call is outside the domain."""
    domain = Domain({"x": TensorSpec("float32", ("rows", 8))}, {}, {"rows": (1, 64)})
    text = compose(Provenance("Norm", "0", "files"), "x", [domain], "def forward(self, x):\n    return x\n")
    (folder / "norm_kernel.py").write_text(text.replace("# source hash: 0\n", ""))
    (folder / "adopted.py").write_text(ADOPTED)


def size(*packages: Path) -> tuple[int, int]:
    """Files and bytes of installed packages, without bytecode."""
    files = [file for package in packages for file in package.rglob("*") if file.is_file()]
    kept = [file for file in files if file.suffix in (".py", ".typed", ".json")]
    return len(kept), sum(file.stat().st_size for file in kept)


def installed(name: str) -> int:
    files = metadata.files(name) or ()
    return sum(file.size or 0 for file in files if file.suffix != ".pyc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="interpreters of each kind (default: 15)")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        adopt(folder)
        for program in WAYS.values():
            seconds(program, folder)  # fills the file cache and writes bytecode
        runs: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way, program in WAYS.items():
                runs[way].append(1000 * seconds(program, folder))
    medians = {way: statistics.median(times) for way, times in runs.items()}
    bare = medians.pop("an interpreter")
    print(
        f"medians of {rounds} interpreters of each kind, less that of one which imports nothing ({bare:.1f} ms)"
    )
    for way, median in medians.items():
        print(f"  {way:50} {median - bare:8.1f} ms")
    runtime, whole = (Path(package.__file__).parent for package in (kernelllm_runtime, pytest_kernelllm))
    alone, both = size(runtime), size(runtime, whole)
    beside = sum(map(installed, (*BESIDE, *ALSO)))
    print(f"  kernelllm-runtime       {alone[0]:4d} files {alone[1] / 2**20:8.2f} MiB, nothing beside")
    print(
        f"  with pytest-kernelllm   {both[0]:4d} files {both[1] / 2**20:8.2f} MiB, {beside / 2**20:.1f} MiB beside"
    )
    print(
        f"  ratio                   {both[1] / alone[1]:.1f} without, {(both[1] + beside) / alone[1]:.0f} with them"
    )


if __name__ == "__main__":
    main()
