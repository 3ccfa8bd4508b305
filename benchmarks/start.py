"""A cold start: a fresh project with two RMS norms, nothing cached, until its kernels are judged and the patches lie there.

Beside it, what ``torch.compile`` takes for the same two modules from a fresh process with cold caches. Needs a GPU.

    python -m benchmarks start [--search 0 10]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.rows import Row, command, less

NORMS = """
import torch
from torch import nn

from kernelllm_runtime import triton_candidate


def narrow(rows: int = 8192):
    return torch.randn(rows, 1024)


def wide(rows: int = 8192):
    return torch.randn(rows, 4096)


class Norm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


@triton_candidate(inputs=narrow, init=(1024,), dims={"rows": (1, 8192)})
class Narrow(Norm):
    pass


@triton_candidate(inputs=wide, init=(4096,), dims={"rows": (1, 8192)})
class Wide(Norm):
    pass
"""

COMPILED = """
import torch
from norms import Narrow, Wide, narrow, wide

for cls, make, width in ((Narrow, narrow, 1024), (Wide, wide, 4096)):
    module, x = cls(width).cuda(), make().cuda()
    torch.compile(module)(x)
torch.cuda.synchronize()
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--search", type=float, nargs="+", default=[0.0], help="seconds of the setting search"
    )


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields a row for each length of the search."""
    theirs, _ = _cold([sys.executable, "-c", COMPILED])
    for search in options.search:
        pytest = [*command("pytest"), "-q", "-p", "no:cacheprovider", "--kernelllm", "--kernelllm-only"]
        more = [f"--kernelllm-set=search={search:g}", "--kernelllm-report=report.json", "norms.py"]
        ours, folder = _cold([*pytest, *more])
        printed = re.findall(r"^(\d+ patch.*?) in ", folder["printed"], re.MULTILINE)
        yield less(
            f"two norms, search {search:g}",
            "torch.compile, not judged",
            theirs,
            ours,
            "s",
            printed[0] if printed else "no patch",
        )


def _cold(run: list[str]) -> tuple[float, dict[str, str]]:
    """Seconds of a command in a fresh project with empty caches, and what it left."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "project")
        project.mkdir()
        (project / "norms.py").write_text(NORMS)
        caches = {
            "TRITON_CACHE_DIR": f"{folder}/triton",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "XDG_CACHE_HOME": f"{folder}/cache",
            "CUDA_CACHE_PATH": f"{folder}/cuda",
        }
        begun = time.monotonic()
        done = subprocess.run(
            run, cwd=project, env=os.environ | caches, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - begun
        if done.returncode:
            raise SystemExit(f"{run} failed:\n{done.stdout}{done.stderr}")
        return seconds, {"printed": done.stdout}
