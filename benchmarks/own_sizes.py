"""Verdicts on problems of KernelBench at their own sizes: seconds by part, and the judge's peak of GPU memory.

    python benchmarks/own_sizes.py --kernelbench CHECKOUT [--times 2] [--inductor] [--profile] [--beside N] [PROBLEM ...]

One judge in one process, one candidate at a time; the first verdict on a problem includes starting and compiling.
The candidates are plain kernels, one for each of ten problems of level 1; with ``--inductor``, the first one of the Inductor
generator, for any problem, such as 63 or 2/17. ``--profile`` adds the lines of the judge at which its thread was found most
often, looked at a hundred times a second: where it computes, launches, or waits for the GPU. ``--beside N`` runs N
more processes that judge the first problem over and over, as the slots of a run do.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import torch

import pytest_kernelllm
from kernelllm_judge.core.records import Candidate, Completion
from kernelllm_judge.environment import find_environment, find_gpus
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.answer_format import format_of
from kernelllm_judge.render.render import render
from kernelllm_judge.target.live import LiveTarget, load_target
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request
from pytest_kernelllm.verify.pairs import find_reference

ELEMENTWISE = """import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask=mask)
    tl.store(out_ptr + index, EXPRESSION, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, 4096),)](x, out, n, BLOCK=4096, num_warps=8)
        return out
"""

SOFTMAX = """import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    peak = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        x = tl.load(x_ptr + row + start + columns, mask=mask, other=-float("inf"))
        higher = tl.maximum(peak, x, propagate_nan=tl.PropagateNan.ALL)
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(peak - safe) + tl.exp(x - safe)
        peak = higher
    top = tl.max(peak, 0)
    lost = tl.sum(tl.where(peak != peak, 1, 0), 0)
    rest = tl.where(lost > 0, float("nan"), tl.sum(tl.where(total > 0, total * tl.exp(peak - top), 0.0), 0))
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        x = tl.load(x_ptr + row + start + columns, mask=mask)
        tl.store(out_ptr + row + start + columns, tl.exp(x - top) / rest, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=4096, num_warps=8)
        return out
"""

RMS_NORM = """import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, inner, eps, FEATURES: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base = tl.program_id(1).to(tl.int64) * FEATURES * inner
    mask = place < inner
    offsets = base + tl.arange(0, FEATURES)[:, None].to(tl.int64) * inner + place[None, :]
    x = tl.load(x_ptr + offsets, mask=mask[None, :], other=0.0)
    rms = tl.sqrt(tl.sum(x * x, 0) / FEATURES + eps)
    tl.store(out_ptr + offsets, x / rms[None, :], mask=mask[None, :])


class ModelNew(torch.nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.num_features = num_features
        self.eps = eps

    def forward(self, x):
        out = torch.empty_like(x)
        inner = x.shape[2] * x.shape[3]
        kernel[(triton.cdiv(inner, 128), x.shape[0])](x, out, inner, self.eps, FEATURES=64, BLOCK=128)
        return out
"""

LEAKY_RELU = ELEMENTWISE.replace("EXPRESSION", "tl.where(x > 0, x, x * slope)")
LEAKY_RELU = LEAKY_RELU.replace("out_ptr, n, BLOCK", "out_ptr, slope, n, BLOCK")
LEAKY_RELU = LEAKY_RELU.replace("(x, out, n, BLOCK", "(x, out, self.negative_slope, n, BLOCK").replace(
    "    def forward",
    """    def __init__(self, negative_slope=0.01):
        super().__init__()
        self.negative_slope = negative_slope

    def forward""",
)

SCALED = ELEMENTWISE.replace("EXPRESSION", "x * scale").replace("forward(self, x)", "forward(self, A, s)")
SCALED = SCALED.replace("out_ptr, n, BLOCK", "out_ptr, scale, n, BLOCK").replace(
    "empty_like(x)", "empty_like(A)"
)
SCALED = SCALED.replace("x.numel()", "A.numel()").replace("(x, out, n, BLOCK", "(A, out, s, n, BLOCK")

CLAMPED = "tl.minimum(tl.maximum(x, -1.0, propagate_nan=ALL), 1.0, propagate_nan=ALL)".replace(
    "ALL", "tl.PropagateNan.ALL"
)

CANDIDATES = {
    "5": SCALED,
    "19": ELEMENTWISE.replace("EXPRESSION", "tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)"),
    "20": LEAKY_RELU,
    "21": ELEMENTWISE.replace("EXPRESSION", "1.0 / (1.0 + tl.exp(-x))"),
    "22": ELEMENTWISE.replace("EXPRESSION", "libdevice.tanh(x)"),
    "23": SOFTMAX,
    "25": ELEMENTWISE.replace("EXPRESSION", "x / (1.0 + tl.exp(-x))"),
    "26": ELEMENTWISE.replace("EXPRESSION", "0.5 * x * (1.0 + libdevice.erf(x * 0.7071067811865476))"),
    "32": ELEMENTWISE.replace("EXPRESSION", CLAMPED),
    "36": RMS_NORM,
}
"""By the number of the problem."""


def candidate_for(number: str, live: LiveTarget, judge: Judge, inductor: bool) -> Candidate:
    """Returns the plain kernel for a problem, or what Inductor writes first.

    Raises:
        ValueError: there is none.
    """
    if not inductor and number not in CANDIDATES:
        raise ValueError("there is no plain kernel for it; --inductor has one written")
    if not inductor:
        text = CANDIDATES[number]
        return render(Completion("files", 0, text, format_of(text)), live, judge.constructors, on_gpu=True)
    [gpu, *_] = find_gpus()
    request = Request(live.target, (0,), lambda: live)
    [(_, completion)] = InductorGenerator(gpu.arch).generate([request])
    if not completion.text:
        raise ValueError(completion.note)
    return render(completion, live, on_gpu=True)


class Sampler:
    """Looks at the stack of the thread that made it, while its block runs."""

    EVERY_S = 0.01

    def __init__(self) -> None:
        self.lines: Counter[str] = Counter()
        """How often a line of the judge was the innermost one…"""
        self.stacks: Counter[str] = Counter()
        """…and the calls that led there."""
        self._watched = threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        package = str(Path(pytest_kernelllm.__file__).parent)
        while not self._over.wait(self.EVERY_S):
            frame, ours = sys._current_frames().get(self._watched), []
            while frame is not None:
                code = frame.f_code
                if code.co_filename.startswith(package):
                    ours.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
                frame = frame.f_back
            if ours:
                self.lines[ours[0]] += 1
                self.stacks[" < ".join(each.split()[1] for each in ours[:7])] += 1

    def __str__(self) -> str:
        total = max(1, sum(self.lines.values()))
        return "\n".join(
            f"    {count / total:6.1%}  {what}"
            for counted in (self.lines, self.stacks)
            for what, count in counted.most_common(15)
        )


@contextlib.contextmanager
def neighbours(count: int, arguments: list[str]) -> Iterator[None]:
    """Runs more processes of this script beside the block."""
    command = [sys.executable, __file__, *arguments, "--times", "1000"]
    started = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
            process.wait()


def main() -> int:
    """Prints a line for every verdict; 1 if one is not acceptance."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="numbers; by default all")
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--beside", type=int, default=0, metavar="N")
    options = parser.parse_args()
    accepted = True
    same = ["--kernelbench", str(options.kernelbench), *["--inductor"] * options.inductor, *options.problems]
    with neighbours(options.beside, same), Judge(find_environment("cuda"), deadline=120) as judge:
        for number in options.problems or CANDIDATES:
            level, _, problem = number.rpartition("/")
            [file] = (options.kernelbench / "KernelBench" / f"level{level or 1}").glob(f"{problem}_*.py")
            target = find_reference(str(file))
            if isinstance(target, str):
                parser.error(target)
            live = load_target(file.parent, target)
            try:
                candidate = candidate_for(number, live, judge, options.inductor)
            except ValueError as error:
                print(f"{file.stem}: {error}")
                continue
            for turn in range(options.times):
                watched = options.profile and turn == options.times - 1
                torch.cuda.reset_peak_memory_stats()
                start = time.perf_counter()
                with Sampler() if watched else contextlib.nullcontext() as seen:
                    verdict = judge.judge(candidate, Criteria(live, min_speedup=0.0))
                took, peak = time.perf_counter() - start, torch.cuda.max_memory_allocated() / 2**30
                parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in verdict.durations.items())
                print(f"{file.stem}: {verdict.verdict} in {took:.2f} s, {peak:.1f} GiB; {parts}", flush=True)
                for line in filter(None, (verdict.reason, str(seen or ""))):
                    print(line, flush=True)
                accepted &= verdict.accepted
    return 0 if accepted else 1


if __name__ == "__main__":
    raise SystemExit(main())
