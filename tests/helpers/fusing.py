"""Targets that Inductor writes for, and the one subprocess in which the kernels run against the originals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from loading import load

from kernelllm_judge.core.kernel_module import read_supports
from kernelllm_judge.core.records import Candidate, Completion
from kernelllm_judge.render.render import render
from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request

DATA = Path(__file__).parents[1] / "data"
COMPLETIONS = DATA / "completions"
PROJECT = DATA / "fusing"


@cache
def live(name: str) -> LiveTarget:
    """A target of ``tests/data/fusing/modules.py``."""
    return load(PROJECT / "modules.py", name)


@cache
def inductor(name: str, samples: int = 1) -> tuple[Completion, ...]:
    """What Inductor writes for a target."""
    request = Request(live(name).target, tuple(range(samples)), lambda: live(name))
    return tuple(completion for _, completion in InductorGenerator().generate([request]))


def from_inductor(name: str, index: int = 0, samples: int = 1) -> Candidate:
    return render(inductor(name, samples)[index], live(name))


def from_text(name: str, completion: str) -> Candidate:
    """A completion of ``tests/data/completions``, rendered for a target."""
    text = (COMPLETIONS / f"{completion}.txt").read_text(encoding="utf-8")
    return render(Completion("files", 0, text, "modelnew"), live(name))


def other_sizes(name: str, case: str) -> dict[str, int]:
    """Sizes for the named dimensions that differ from the traced ones; the first is 1."""
    sizes = live(name).case(case).sizes
    return {dim: 1 if i == 0 else size + 2 for i, (dim, size) in enumerate(sizes.items())}


def errors(folder: Path, candidates: dict[str, tuple[str, Candidate]]) -> dict[str, Any]:
    """Relative error by ``name case``, and by ``name case sizes`` at other sizes; an exception's text on failure.

    Args:
        folder: scratch folder.
        candidates: target and candidate by a name for the result.
    """
    jobs = []
    for name, (target, candidate) in candidates.items():
        file = folder / f"{name}.py"
        file.write_text(candidate.source, encoding="utf-8")
        open_dims = any(domain.dims for domain in read_supports(candidate.source))
        for case in live(target).cases:
            jobs += [
                _job(f"{name} {case.name}{suffix}", file, target, case.name, sizes)
                for suffix, sizes in (("", {}), (" other sizes", other_sizes(target, case.name)))
                if not suffix or (sizes and open_dims)
            ]
    targets = {name: live(name).target.to_json() for name, _ in candidates.values()}
    return _run(json.dumps({"targets": targets, "jobs": jobs}), [str(PROJECT)])


def _job(name: str, file: Path, target: str, case: str, sizes: dict[str, int]) -> dict[str, Any]:
    return {"name": name, "file": str(file), "target": target, "case": case, "sizes": sizes}


def _run(request: str, arguments: Sequence[str]) -> dict[str, Any]:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(DATA.parents[1])
    done = subprocess.run(
        [sys.executable, str(DATA / "run_fused.py"), *arguments],
        input=request,
        capture_output=True,
        text=True,
        env=environment,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
