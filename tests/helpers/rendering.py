"""Targets for the rendering tests, and the one subprocess in which rendered kernels run against them."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from loading import load

from kernelllm_judge.constructors import Constructors
from kernelllm_judge.core.records import Candidate, Completion
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.render.render import render
from kernelllm_judge.target.live import LiveTarget

DATA = Path(__file__).parents[1] / "data"
COMPLETIONS = DATA / "completions"
PROJECT = DATA / "rendering"


@cache
def live(name: str) -> LiveTarget:
    """A target of ``tests/data/rendering/layers.py``."""
    return load(PROJECT / "layers.py", name)


def completion(text: str, **changes: Any) -> Completion:
    return Completion(**{"generator": "files", "index": 0, "text": text, "format": "modelnew", **changes})


@cache
def constructors() -> Constructors:
    """What runs the constructors of answers, for all tests of this process."""
    opened = Constructors(probe_isolation("cpu"))
    atexit.register(opened.close)
    return opened


def rendered(target: str, text: str, **changes: Any) -> Candidate:
    return render(completion(text, **changes), live(target), constructors())


def run_against_originals(folder: Path, candidates: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Largest error of each rendered kernel in Triton's interpreter, or the exception's text.

    Args:
        folder: scratch folder.
        candidates: target name and kernel module source by a name for the result.
    """
    for name, (_, source) in candidates.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    command = [sys.executable, str(DATA / "run_rendered.py"), str(folder), str(PROJECT)]
    targets = json.dumps({name: live(target).target.to_json() for name, (target, _) in candidates.items()})
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(DATA.parents[1])
    done = subprocess.run(
        command, input=targets, capture_output=True, text=True, env=environment, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
