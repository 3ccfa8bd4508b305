"""Verdicts a minute of ``kernelllm verify --pairs``, with one GPU and with all of them, timing included.

Distinct pairs in KernelBench's form, about 15 candidates for each reference that differ in their text, a quarter of them wrong.
Other pairs are judged first, so that every run finds the caches of compiled kernels filled. The rate leaves out the first and the
last tenth of the verdicts: starting up and running dry. Without a GPU: Triton's interpreter, one process against two.

    python -m benchmarks throughput [--pairs 120] [--rows 8192]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.rows import Row, command, more
from kernelllm_judge.environment import equal_gpus, find_gpus

COLUMNS = 2048
UNTIMED = 90_000
"""Numbers of the pairs that are judged first. No timed pair has them."""

REFERENCE = """# Reference {group}.
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return {torch}


def get_inputs():
    return [torch.randn({rows}, {columns})]


def get_init_inputs():
    return [{columns}]
"""

CANDIDATE = """# Candidate {number}.
import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, weight_ptr, out_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns)
    weight = tl.load(weight_ptr + columns)
    y = {triton}
    tl.store(out_ptr + row + columns, y{slip})


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        out = torch.empty_like(x)
        row_kernel[(x.shape[0],)](x, self.weight, out, WIDTH={columns})
        return out
"""

ROWS = (
    ("x * self.weight + 0.25", "x * weight + 0.25"),
    ("torch.relu(x) * self.weight", "tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) * weight"),
    (
        "torch.clamp(x * self.weight, -1.0, 1.0)",
        "tl.clamp(x * weight, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL)",
    ),
    ("x * torch.sigmoid(x) + self.weight", "x / (1.0 + tl.exp(-x)) + weight"),
    ("torch.abs(x - self.weight)", "tl.abs(x - weight)"),
    ("torch.softmax(x * self.weight, dim=-1)", "tl.softmax(x * weight)"),
    (
        "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight",
        "x * tl.rsqrt(tl.sum(x * x) / WIDTH + 1e-6) * weight",
    ),
    ("(x - x.mean(-1, keepdim=True)) * self.weight", "(x - tl.sum(x) / WIDTH) * weight"),
)
"""What a row becomes, for PyTorch and for Triton."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--pairs", type=int, default=120, help="distinct pairs a GPU")
    parser.add_argument(
        "--rows", type=int, help=f"of {COLUMNS} elements (default 8192; without a GPU 4 of 64)"
    )


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields the rate of one GPU, and that of all beside it."""
    gpus = equal_gpus(find_gpus())
    rows, columns = (options.rows or 8192, COLUMNS) if gpus else (options.rows or 4, 64)
    with tempfile.TemporaryDirectory() as folder:
        write_pairs(Path(folder), 2 * len(ROWS), rows, columns, first=UNTIMED)
        _rate(Path(folder), [], None)
    alone = 0.0
    for number in sorted({1, len(gpus)}) if gpus else (1, 2):
        what = f"{number} × {gpus[0].name}" if gpus else f"interpreter, processes: {number}"
        listed = ",".join(gpu.uuid for gpu in gpus[:number]) if gpus else None
        with tempfile.TemporaryDirectory() as folder:
            write_pairs(Path(folder), options.pairs * (number if gpus else 1), rows, columns)
            rate, note = _rate(Path(folder), [] if gpus else ["--workers", str(number)], listed)
        if number == 1:
            alone = rate
            yield Row(what, "", None, rate, "verdicts/min", note=note)
        else:
            yield more(what, "one", alone, rate, "verdicts/min", note)


def write_pairs(folder: Path, count: int, rows: int, columns: int, first: int = 0) -> None:
    """``count`` distinct pairs, numbered from ``first``: about 15 candidates a reference, every fourth of them wrong."""
    groups = max(len(ROWS), count // 15)
    for number in range(first, first + count):
        group, turn = number % groups, number // groups
        wrong = turn % 4 == 3
        pair = folder / f"{'wrong' if wrong else 'right'}_{number:05}"
        pair.mkdir(parents=True)
        in_torch, in_triton = ROWS[group % len(ROWS)]
        sizes = {"rows": rows, "columns": columns}
        (pair / "reference.py").write_text(REFERENCE.format(group=group, torch=in_torch, **sizes))
        slip = " * 1.01" if wrong else ""
        text = CANDIDATE.format(number=number, triton=in_triton, slip=slip, **sizes)
        (pair / "candidate.py").write_text(text)


def _rate(folder: Path, arguments: list[str], visible: str | None) -> tuple[float, str]:
    """Judges a folder of pairs; verdicts a minute, and what else is worth knowing.

    Raises:
        SystemExit: a verdict is not what its pair was made for, or none came.
    """
    environment = dict(os.environ) | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    verify = [*command("kernelllm"), "verify", "--pairs", str(folder), "--json", "-", *arguments]
    begun, times = time.monotonic(), []
    with subprocess.Popen(verify, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            times.append(time.monotonic() - begun)
            found = json.loads(line)
            if found["verdict"] != ("rejected" if found["name"].startswith("wrong") else "accepted"):
                raise SystemExit(f"{found['name']}: {found['verdict']}: {found['reason']}")
    if len(times) < 3:
        raise SystemExit(f"`{' '.join(verify)}` gave {len(times)} verdicts.")
    tenth = len(times) // 10
    middle = times[tenth : len(times) - tenth]
    rate = 60 * (len(middle) - 1) / max(middle[-1] - middle[0], 1e-9)
    return rate, f"{len(times)} pairs, the first after {times[0]:.1f} s"
