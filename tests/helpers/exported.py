"""A project with one verified kernel, and its export: for tests with and without a GPU."""

import contextlib
import importlib
import io
import itertools
from dataclasses import dataclass
from pathlib import Path

import kernels
import torch
from projects import GOOD, LAYERS
from standing_now import NOW

from kernelllm_judge.core.kernel_module import Provenance, compose
from kernelllm_judge.core.records import (
    Candidate,
    Domain,
    Environment,
    KernelRecord,
    Ratio,
    Spread,
    TensorSpec,
    Timing,
    Verdict,
)
from pytest_kernelllm.cli import main
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.store import Store

CPU = Environment("cpu", arch="sm_90", torch="2.13.0", triton="3.7.1")
H200 = Environment("cuda", "NVIDIA H200", "570.1", "sm_90", "2.13.0", "3.7.1")
NUMBERS = itertools.count()


def timed(speedup: float) -> tuple[Timing, ...]:
    spread = Spread(1.0, 1.0, 1.0)
    return (Timing("default", spread, spread, spread, spread, Ratio(speedup, speedup - 0.1, speedup + 0.1)),)


def kernel_source(source_hash: str, adds: int = 2, dtype: str = "float32") -> str:
    """Adds two where the original adds one, so that one can see which of the two ran."""
    domain = Domain(
        {"x": TensorSpec(dtype, ("n", 64))}, {"weight": TensorSpec("float32", (64,))}, {"n": (1, 64)}
    )
    body = GOOD.split("import triton.language as tl")[1].replace("+ 1)", f"+ {adds})")
    return compose(Provenance("layers.py::Scale", source_hash, "test"), "Scale.", [domain], body)


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Project:
    """A project on disk, whose one file is imported as ``name``."""

    root: Path
    name: str

    @property
    def file(self) -> Path:
        return self.root / f"{self.name}.py"

    @property
    def targets(self):
        return scan_file(self.file, self.root).targets

    @property
    def target(self):
        (target,) = self.targets
        return target

    @property
    def layers(self):
        return importlib.import_module(self.name)

    def verified(
        self, adds: int = 2, environment=CPU, speedup: float = 0.0, status="accepted", target=None
    ) -> None:
        """Put a verdict on a kernel for the class into the store."""
        target = target or self.target
        candidate = Candidate(target.id, kernel_source(target.source_hash, adds), "test")
        verdict = Verdict(status, "correctness", "", candidate.kernel_hash, environment, versions=NOW)
        if speedup:
            verdict = Verdict(
                status, "timing", "", candidate.kernel_hash, environment, timing=timed(speedup), versions=NOW
            )
        record = KernelRecord(target.id, target.source_hash, candidate, verdict, "2026-11-21T00:00:00Z")
        Store(self.root).verdicts.add(record)

    def export(self, *arguments: str) -> Done:
        name = f"{self.name.replace('_', '-')}-x"
        return self.run("--to", "hf-kernels", "hf", "--name", name, *arguments)

    def run(self, *arguments: str) -> Done:
        """``kernelllm export``, in this process: importing torch each time takes longer than all else."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.root), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(["export", *arguments])
            except SystemExit as stop:
                code = int(stop.code)
        return Done(code, out.getvalue(), err.getvalue())


def make_project(root: Path, monkeypatch, text: str = LAYERS) -> Project:
    # Another name each time: modules are imported once, and the library keeps what it loaded.
    project = Project(root, f"layers_{next(NUMBERS)}_of_test")
    project.file.write_text(text)
    monkeypatch.syspath_prepend(root)
    return project


def kernelized(module, path: Path, device: str, mode=kernels.Mode.INFERENCE):
    """The module after the real library has had it."""
    kernels.replace_kernel_forward_from_hub(type(module), "Scale")
    repository = kernels.LocalLayerRepository(path, layer_name="Scale")
    with kernels.use_kernel_mapping({"Scale": {device: repository}}, inherit_mapping=False):
        return kernels.kernelize(module, mode=mode, device=device, use_fallback=True)


def adds(module, x) -> float:
    """What a call adds: 2 by the kernel, 1 by the original."""
    with torch.no_grad():
        return float((module(x) - x * module.weight).mean().round())
