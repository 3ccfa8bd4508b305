"""Verdicts a minute of ``kernelllm verify --pairs``, with one GPU and with all of them, timing included.

    python benchmarks/throughput.py [--pairs 120] [--rows 8192] [--out throughput.json]

Writes ``--pairs`` distinct pairs a GPU: references in KernelBench's form with about 15 candidates each that differ in
their text, a quarter of them wrong. Other pairs are judged first, so that every run finds the caches of compiled kernels
filled. The sustained rate leaves out the first and the last tenth: starting up and running dry. Exit 1 if a verdict is not
what the pair was made for. Without a GPU: Triton's interpreter, one process against two.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Rate:
    """One run. Times in seconds."""

    what: str
    pairs: int
    seconds: float
    first_verdict: float
    a_minute: float
    """Verdicts a minute over the whole run, its start included."""
    sustained: float
    """Verdicts a minute between the first and the last tenth of the verdicts."""
    surprises: list[str]
    """Pairs whose verdict is not what they were made for."""


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


def run(what: str, folder: Path, arguments: list[str], visible: str | None) -> Rate:
    """Judge a folder of pairs, noting when each verdict comes."""
    command = [sys.executable, "-m", "pytest_kernelllm.cli", "verify", "--pairs", str(folder), "--json", "-"]
    environment = dict(os.environ)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    start = time.monotonic()
    times, surprises = [], []
    with subprocess.Popen(
        [*command, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            times.append(time.monotonic() - start)
            found = json.loads(line)
            expected = "rejected" if found["name"].startswith("wrong") else "accepted"
            if found["verdict"] != expected:
                surprises.append(f"{found['name']}: {found['verdict']}: {found['reason']}")
    if not times:
        raise SystemExit(f"no verdict came; `{' '.join(command)}` exited with status {process.returncode}")
    tenth = len(times) // 10
    middle = times[tenth : len(times) - tenth]
    return Rate(
        what=what,
        pairs=len(times),
        seconds=round(times[-1], 2),
        first_verdict=round(times[0], 2),
        a_minute=round(60 * len(times) / times[-1], 1),
        sustained=round(60 * (len(middle) - 1) / max(middle[-1] - middle[0], 1e-9), 1),
        surprises=surprises,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=120, help="distinct pairs a GPU")
    parser.add_argument(
        "--rows", type=int, help=f"rows of {COLUMNS} elements (default 8192; without a GPU 4 of 64)"
    )
    parser.add_argument("--workers", type=int, help="judging processes a GPU (default: kernelllm's own)")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    gpus = equal_gpus(find_gpus())
    plans: list[tuple[str, int, list[str], str | None]]
    if gpus:
        rows, columns = options.rows or 8192, COLUMNS
        plans = []
        for number in sorted({1, len(gpus)}):
            workers = ["--workers", str(options.workers * number)] if options.workers else []
            listed = ",".join(gpu.uuid for gpu in gpus[:number])
            plans.append((f"{number} × {gpus[0].name}", options.pairs * number, workers, listed))
    else:
        rows, columns = options.rows or 4, 64
        plans = [
            (f"interpreter, {n} process{'es' * (n > 1)}", options.pairs, ["--workers", str(n)], None)
            for n in (1, 2)
        ]
    rates: list[Rate] = []
    with tempfile.TemporaryDirectory() as folder:
        write_pairs(Path(folder), 2 * len(ROWS), rows, columns, first=UNTIMED)
        run("caches", Path(folder), *plans[0][2:])
    for what, count, arguments, visible in plans:
        with tempfile.TemporaryDirectory() as folder:
            write_pairs(Path(folder), count, rows, columns)
            rates.append(run(what, Path(folder), arguments, visible))
        rate = rates[-1]
        print(
            f"{what}: {rate.pairs} pairs in {rate.seconds:.1f} s, first verdict after {rate.first_verdict:.1f} s, "
            f"{rate.a_minute:.0f} verdicts/min, sustained {rate.sustained:.0f}",
            flush=True,
        )
        for surprise in rate.surprises:
            print(f"  not as made: {surprise}")
    ratio = rates[-1].sustained / rates[0].sustained
    print(f"{rates[-1].what} against {rates[0].what}: {ratio:.2f} times as many")
    if options.out:
        figures = {
            "cores": len(os.sched_getaffinity(0)),
            "machine": platform.machine(),
            "elements": rows * columns,
            "runs": [asdict(rate) for rate in rates],
            "ratio": round(ratio, 3),
        }
        options.out.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if any(rate.surprises for rate in rates) else 0


if __name__ == "__main__":
    raise SystemExit(main())
