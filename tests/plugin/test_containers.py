"""Modules that hold other modules in ``nn.Sequential``, ``nn.ModuleList`` and ``nn.ModuleDict``: the whole way, as users go it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from projects import COMMAND

pytestmark = pytest.mark.slow

MODULES = """
import torch
from torch import nn
from torch.nn import functional as F

from pytest_kernelllm import triton_candidate


def rows():
    return torch.randn(4, 16)


@triton_candidate(inputs=rows)
class FeedForward(nn.Module):
    def __init__(self, width=16, approximate="none"):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(16, width), nn.GELU(approximate), nn.LayerNorm(width, eps=1e-3), nn.Linear(width, 16)
        )

    def forward(self, x):
        return self.net(x)


@triton_candidate(inputs=rows)
class Tower(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


@triton_candidate(inputs=rows)
class Branches(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.blocks = nn.ModuleDict({"down-1": nn.Linear(16, width), "up": nn.Linear(width, 16)})

    def forward(self, x):
        return x + self.blocks["up"](F.silu(self.blocks["down-1"](x)))
"""

USE = """
import importlib.util, json, sys
import torch
import parts
from pytest_kernelllm.runtime import explain

spec = importlib.util.spec_from_file_location(
    "exported", "hf/build/torch-cuda/__init__.py", submodule_search_locations=["hf/build/torch-cuda"]
)
exported = sys.modules["exported"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(exported)
torch.set_num_threads(1)
x = torch.randn(4, 16)
found = {}
for name, arguments in (
    ("FeedForward", {}), ("FeedForward", {"width": 24}), ("FeedForward", {"approximate": "tanh"}),
    ("Tower", {}), ("Tower", {"depth": 2}), ("Branches", {}), ("Branches", {"width": 8}),
):
    module = getattr(parts, name)(**arguments).eval().requires_grad_(False)
    original = type(module).forward.__kernelllm_original__(module, x)
    found[f"{name} {arguments}"] = {
        "adopted": explain(module, x).removeprefix(name),
        "errors": [
            float((run(x) - original).abs().max())
            for run in (module, module, lambda x: getattr(exported.layers, name).forward(module, x))
        ],
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path: Path = tmp_path_factory.mktemp("containers")
    (path / "parts.py").write_text(MODULES)
    (path / "use.py").write_text(USE)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def done(*command: str, **changes: str) -> str:
        run = subprocess.run(
            command, cwd=path, env={**environment, **changes}, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    done("git", "init", "-q")
    options = ("--kernelllm-generator=inductor", "--kernelllm-samples=1", "--kernelllm-device=cpu")
    report = done(sys.executable, "-m", "pytest", "-q", "--kernelllm", *options)
    assert "3 passed, 3 skipped" in report
    done(*COMMAND, "export", "--to", "hf-kernels", "hf")
    done(*COMMAND, "apply")
    assert (path / "parts.py").read_text().count('kernel="_triton.') == 3
    interpreted = {"KERNELLLM_INTERPRET": "1", "TRITON_INTERPRET": "1", "KERNELLLM_STRICT": "1"}
    return dict(json.loads(done(sys.executable, "use.py", **interpreted)))


@pytest.mark.parametrize("name", ["FeedForward", "Tower", "Branches"])
def test_a_verified_kernel_runs_where_it_is_adopted_and_exported(found: dict[str, Any], name: str) -> None:
    told = found[f"{name} {{}}"]
    assert "runs the kernel _triton." in told["adopted"]
    assert max(told["errors"]) < 1e-5


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("FeedForward {'width': 24}", "`net.0.weight` has shape (24, 16), the kernel is for (16, 16)"),
        ("FeedForward {'approximate': 'tanh'}", "`net.1.approximate` is 'tanh', the kernel is for 'none'"),
        ("Tower {'depth': 2}", "`layers` does not have the parts that the kernel was verified with"),
        (
            "Branches {'width': 8}",
            "`blocks.down-1.weight` has shape (8, 16), the kernel is for (4, 16)",
        ),
    ],
)
def test_other_parts_run_the_original(found: dict[str, Any], name: str, reason: str) -> None:
    told = found[name]
    assert reason in told["adopted"]
    assert max(told["errors"]) == 0.0
