"""A project with an adopted kernel, and verdicts and runs as a GPU leaves them, made without one."""

from dataclasses import replace
from pathlib import Path

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
    Target,
    TensorSpec,
    Timing,
    Verdict,
)
from pytest_kernelllm.core.history import RecordedKernel, Run
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.store import Store

DOMAIN = Domain(
    {"x": TensorSpec("float32", ("n", 64))}, {"weight": TensorSpec("float32", (64,))}, {"n": (1, 64)}
)


def adopt(root: Path, body: str = GOOD) -> tuple[Target, Candidate]:
    """Writes ``layers.py`` and the kernel that its class adopts."""
    (root / "layers.py").write_text(LAYERS.replace("dims=", 'kernel="scale_kernel", dims='))
    [target] = scan([root / "layers.py"], root).targets
    made = Provenance(target.id, target.source_hash, "test")
    source = compose(made, "Scale.", [DOMAIN], body.split("import triton.language as tl")[1])
    (root / "scale_kernel.py").write_text(source)
    return target, Candidate(target.id, source, "adopted")


def timing(speedup: float, *, case: str = "default", noise: float = 0.01, kernel: float = 10.0) -> Timing:
    """A case on which a call of the original takes ``speedup * kernel`` µs."""

    def around(middle: float) -> Spread:
        return Spread(middle * 0.99, middle, middle * 1.01)

    fast, slow = around(kernel), around(kernel * speedup)
    ratio = Ratio(speedup, speedup * (1 - noise), speedup * (1 + noise))
    return Timing(case, fast, slow, fast, slow, ratio, bytes=4096, roofline_share=0.5)


def verdict(candidate: Candidate, environment: Environment, *timings: Timing) -> Verdict:
    """An accepted one."""
    return Verdict(
        "accepted",
        "timing",
        "",
        candidate.kernel_hash,
        environment,
        timing=timings,
        cases=("default",),
        versions=NOW,
    )


def know(root: Path, target: Target, candidate: Candidate, found: Verdict) -> None:
    """Puts a verdict into the project's store."""
    record = KernelRecord(target.id, target.source_hash, candidate, found, "2026-11-01T00:00:00+00:00")
    Store(root).verdicts.add(record)


def run_of(target: Target, found: Verdict, identity: str, name: str = "", slower: bool = False) -> Run:
    """A run in which the target's kernel got this verdict."""
    kernel = RecordedKernel(
        target.id, target.source_hash, "", found.kernel_hash, found.correct, found.timing, slower
    )
    return Run(identity, name, f"{identity[:4]}-11-01T00:00:00+00:00", found.environment, (kernel,))


def upgraded(environment: Environment, torch: str) -> Environment:
    """The same machine with another torch."""
    return replace(environment, torch=torch)
