"""How much a reported speedup varies, and how long a verdict takes: one kernel judged many times by one warm judge.

    python benchmarks/noise.py [--times 50] [--out noise.json]

Two subjects. ``Same`` launches a Triton kernel of its own, and the candidate is that very kernel: its speedup must come out
at 1.00 within its interval. ``RMSNorm`` (4096 × 4096, float32) is an ordinary one. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from kernelllm_judge.core.kernel_module import format_supports
from kernelllm_judge.core.records import Candidate, Verdict
from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.target.live import LiveTarget, load_target
from pytest_kernelllm.discover.scan import scan_file

SOFTSIGN = """
import torch
import triton
import triton.language as tl


@triton.jit
def softsign_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    tl.store(out_ptr + index, x / (1 + tl.abs(x)), mask=index < n)


def softsign(x):
    out = torch.empty_like(x)
    softsign_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""

SUBJECTS = (
    SOFTSIGN
    + '''

from torch import nn

from pytest_kernelllm import triton_candidate


def rows(n=4096):
    return torch.randn(n, 4096)


@triton_candidate(inputs=rows, dims={"n": (1, 8192)})
class Same(nn.Module):
    """``x / (1 + |x|)``, by the candidate's own kernel."""

    def forward(self, x):
        return softsign(x) if x.is_cuda else x / (1 + x.abs())


@triton_candidate(inputs=rows, init=(4096,), dims={"n": (1, 8192)})
class RMSNorm(nn.Module):
    """``x / sqrt(mean(x²) + 1e-6) * weight`` over the last dimension."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
'''
)

CANDIDATES = {
    "Same": SOFTSIGN + "\n\ndef forward(self, x):\n    return softsign(x)\n",
    "RMSNorm": """
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
}


def candidate(live: LiveTarget, number: int) -> Candidate:
    """The same kernel under another number: no two texts are equal, so nothing can be remembered."""
    supports = format_supports([case.domain for case in live.cases])
    text = f"{CANDIDATES[live.target.name]}\n\n{supports}# judged as number {number}\n"
    return Candidate(live.target.id, text, "files")


def spread(verdicts: list[Verdict]) -> dict[str, Any]:
    """What the verdicts say together; speedups of rejected ones are none."""
    timings = [verdict.timing[0] for verdict in verdicts if verdict.timing]
    found: dict[str, Any] = {
        "judged": len(verdicts),
        "accepted": sum(verdict.accepted for verdict in verdicts),
        "reasons": sorted({verdict.reason for verdict in verdicts if not verdict.accepted}),
        "seconds": median(verdict.seconds for verdict in verdicts),
    }
    if len(timings) < 2:
        return found
    values = [timing.speedup.value for timing in timings]
    middle = median(values)
    cuts = quantiles(values, n=20, method="inclusive")
    return found | {
        "median": middle,
        "p5": cuts[0],
        "p95": cuts[-1],
        "largest deviation": max(abs(value / middle - 1) for value in values),
        "intervals with 1.00": sum(t.speedup.low <= 1 <= t.speedup.high for t in timings) / len(timings),
        "half width": median((t.speedup.high - t.speedup.low) / 2 for t in timings),
        "kernel µs": median(timing.kernel.p50 for timing in timings),
        "values": values,
    }


def measure(judge: Judge, live: LiveTarget, times: int) -> dict[str, Any]:
    """As many verdicts, one after the other."""
    criteria = Criteria(live, min_speedup=0)
    judge.judge(candidate(live, 0), criteria)  # starts the judge's processes
    return spread([judge.judge(candidate(live, number), criteria) for number in range(1, times + 1)])


def show(name: str, numbers: dict[str, Any]) -> None:
    print(
        f"{name}: {numbers['accepted']} of {numbers['judged']} accepted, {numbers['seconds']:.2f} s a verdict"
    )
    if "median" in numbers:
        print(
            f"    speedup {numbers['median']:.4f}, p5–p95 {numbers['p5']:.4f}–{numbers['p95']:.4f}, "
            f"largest deviation {numbers['largest deviation']:.2%}; intervals ±{numbers['half width']:.4f}, "
            f"{numbers['intervals with 1.00']:.0%} contain 1.00"
        )
    for reason in numbers["reasons"]:
        print(f"    rejected: {reason}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--out", type=Path, metavar="JSON")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("Speed is measured on a CUDA GPU; this machine has none.")
        return 2
    environment = find_environment("cuda")
    results: dict[str, Any] = {
        "gpu": environment.gpu,
        "torch": environment.torch,
        "triton": environment.triton,
    }
    with tempfile.TemporaryDirectory() as folder, Judge(environment) as judge:
        file = Path(folder) / "subjects.py"
        file.write_text(SUBJECTS, encoding="utf-8")
        for target in scan_file(file, file.parent).targets:
            live = load_target(file.parent, target)
            results[target.name] = measure(judge, live, options.times)
            show(target.name, results[target.name])
            if options.out:
                options.out.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
