"""Targets for the rendering tests, and the one subprocess in which rendered kernels run against them."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pytest_kernelllm.generate.render import render
from pytest_kernelllm.records import Candidate, Case, Completion, Domain, Target, TensorSpec

DATA = Path(__file__).parents[1] / "data"
COMPLETIONS = DATA / "completions"


class Live:
    """What rendering asks a live target for, written down by hand."""

    def __init__(
        self,
        name: str,
        forward: str,
        init: tuple[Any, ...],
        inputs: dict[str, Any],
        attributes: dict[str, Any],
    ) -> None:
        self.target = Target(path="layers.py", name=name, line=1, source_hash="0" * 64, kind="decorator")
        namespace: dict[str, Any] = {}
        exec(f"def forward({forward}): ...", namespace)
        self.signature = inspect.signature(namespace["forward"])
        self.cases = (Case("default", "float32", Domain(inputs=inputs, attributes=attributes)),)
        self._init = init

    def init_arguments(self, case: Case) -> Any:
        return inspect.signature(lambda *args: None).bind(*self._init)


def f32(*shape: int | str) -> TensorSpec:
    return TensorSpec("float32", shape)


LIVE = {
    "Add": Live("Add", "x, y", (), {"x": f32(4, 33), "y": f32(4, 33)}, {}),
    "RMSNorm": Live(
        "RMSNorm",
        "hidden_states",
        (48, 1e-5),
        {"hidden_states": f32(5, 48)},
        {"weight": f32(48), "variance_epsilon": 1e-5},
    ),
    "LayerNorm": Live(
        "LayerNorm",
        "x",
        (40,),
        {"x": f32(6, 40)},
        {"weight": f32(40), "bias": f32(40), "eps": 1e-5, "size": 40},
    ),
    "Softmax": Live("Softmax", "x", (), {"x": f32(7, 50)}, {}),
    "LinearGelu": Live(
        "LinearGelu",
        "x, residual=None",
        (16, 24),
        {"x": f32(3, 16)},
        {
            "fc.weight": f32(24, 16),
            "fc.bias": f32(24),
            "fc.in_features": 16,
            "fc.out_features": 24,
            "fc.__class__": "torch.nn.modules.linear.Linear",
            "act.approximate": "none",
            "act.__class__": "torch.nn.modules.activation.GELU",
        },
    ),
    "Scale": Live(
        "Scale", "x", (4, 64, True), {"x": f32(4, 16)}, {"heads": 4, "dim": 64, "head_dim": 16, "limit": 30.0}
    ),
}


def completion(text: str, **changes: Any) -> Completion:
    return Completion(**{"generator": "files", "index": 0, "text": text, "format": "modelnew", **changes})


def rendered(target: str, text: str, **changes: Any) -> Candidate:
    return render(completion(text, **changes), LIVE[target])  # type: ignore[arg-type]


def run_against_originals(folder: Path, candidates: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Largest error of each rendered kernel in Triton's interpreter, or the exception's text.

    Args:
        folder: scratch folder.
        candidates: target name and kernel module source by a name for the result.
    """
    for name, (_, source) in candidates.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    command = [sys.executable, str(DATA / "run_rendered.py"), str(folder)]
    names = json.dumps({name: target for name, (target, _) in candidates.items()})
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, input=names, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
