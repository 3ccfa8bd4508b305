"""How much a reported speedup varies: one kernel judged many times by ``kernelllm verify --pairs``, as users judge it.

``same`` launches a Triton kernel of its own, and the candidate is that very kernel: its speedup must come out at 1.00 within its
interval. ``RMSNorm`` (4096 × 4096, float32) is an ordinary one. Needs a GPU.

    python -m benchmarks noise [--times 20]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.rows import Row, command

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def softsign_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, i < n)
    tl.store(out_ptr + i, x / (1.0 + tl.abs(x)), i < n)


def softsign(x):
    out = torch.empty_like(x)
    softsign_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""

INPUTS = """

def get_inputs():
    return [torch.randn(4096, 4096)]


def get_init_inputs():
    return [{arguments}]
"""

SUBJECTS = {
    "same": (
        KERNEL
        + "\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        + "        return softsign(x) if x.is_cuda else x / (1 + x.abs())\n"
        + INPUTS.format(arguments=""),
        KERNEL + "\n\ndef forward(self, x):\n    return softsign(x)\n",
    ),
    "RMSNorm": (
        """
import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
"""
        + INPUTS.format(arguments="4096"),
        """
import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / WIDTH + 1e-6)
    tl.store(out_ptr + row + columns, x * scale * tl.load(weight_ptr + columns))


def forward(self, x):
    out = torch.empty_like(x)
    rms_norm_kernel[(x.shape[0],)](x, self.weight, out, WIDTH=4096, num_warps=8)
    return out
""",
    ),
}
"""By name, a reference and a candidate for it."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--times", type=int, default=20, help="how often each kernel is judged")


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields what the verdicts on each kernel say together."""
    for name, (reference, candidate) in SUBJECTS.items():
        with tempfile.TemporaryDirectory() as folder:
            for number in range(options.times):
                pair = Path(folder, f"{number:03}")
                pair.mkdir()
                (pair / "reference.py").write_text(reference)
                # No two texts are equal, or they would be judged once.
                (pair / "candidate.py").write_text(f"{candidate}\n\n# judged as number {number}\n")
            found = _verdicts(Path(folder))
        speedups = sorted(v["timing"][0]["speedup"]["value"] for v in found if v["timing"])
        if len(speedups) < 2:
            raise SystemExit(f"{name}: {[v['reason'] for v in found]}")
        wide = [v["timing"][0]["speedup"] for v in found if v["timing"]]
        middle = statistics.median(speedups)
        inside = sum(each["low"] <= middle <= each["high"] for each in wide)
        note = (
            f"{speedups[0]:.3f} to {speedups[-1]:.3f} in {len(found)} verdicts, {inside} of whose intervals hold the median; "
            f"{sum(v['verdict'] == 'accepted' for v in found)} accepted"
        )
        times = [
            statistics.median(v["timing"][0][way]["p50"] for v in found if v["timing"])
            for way in ("eager", "kernel")
        ]
        yield Row(name, "eager", times[0], times[1], "µs", middle, note=note)


def _verdicts(folder: Path) -> list[dict[str, Any]]:
    verify = [*command("kernelllm"), "verify", "--pairs", str(folder), "--json", "-"]
    done = subprocess.run(verify, env=os.environ, stdout=subprocess.PIPE, text=True, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()]
