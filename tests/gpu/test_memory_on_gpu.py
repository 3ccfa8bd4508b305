"""What a verdict takes of the GPU's memory stays below its lease, judge and worker together."""

import contextlib
import threading

import pytest
import torch
from rendering import constructors

from kernelllm_judge.core.records import Completion
from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.pair_files import find_reference
from kernelllm_judge.policy import Policy
from kernelllm_judge.render.answer_format import format_of
from kernelllm_judge.render.render import render
from kernelllm_judge.target.live import load_target
from kernelllm_judge.truth.outputs import ReferenceOutputs

GIB = 1 << 30

IMPORTS = """import torch
import triton
import triton.language as tl
"""

ELEMENTWISE = """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    tl.store(out_ptr + index, tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL), mask=index < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, 4096),)](x, out, n, BLOCK=4096, num_warps=8)
        return out
"""

SOFTMAX = """
@triton.jit
def kernel(x_ptr, out_ptr, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(x_ptr + place)
    top = tl.max(x, 0)
    lost = tl.sum(tl.where((x != x) | (top == float("inf")) | (top == -float("inf")), 1, 0), 0)
    shifted = tl.exp(x - top)
    out = shifted / tl.sum(shifted, 0)
    tl.store(out_ptr + place, tl.where(lost > 0, float("nan"), out))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(x.shape[0],)](x, out, WIDTH=4096, num_warps=8)
        return out
"""

LOSS = """
@triton.jit
def kernel(x_ptr, y_ptr, part_ptr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    apart = tl.load(x_ptr + place) - tl.load(y_ptr + place)
    tl.store(part_ptr + tl.program_id(0), tl.sum(apart * apart, 0))


@triton.jit
def total(part_ptr, out_ptr, n, PARTS: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(part_ptr + tl.arange(0, PARTS)), 0) / n)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        parts = torch.empty(16384, dtype=x.dtype, device=x.device)
        out = torch.empty((), dtype=x.dtype, device=x.device)
        kernel[(16384,)](x, y, parts, BLOCK=4096, num_warps=8)
        total[(1,)](parts, out, x.numel(), PARTS=16384, num_warps=8)
        return out
"""

MATMUL = """
@triton.jit
def kernel(a_ptr, b_ptr, out_ptr, K: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, STEP):
        inner = start + tl.arange(0, STEP)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * N + columns[None, :])
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], total)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        out = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
        kernel[(a.shape[0] // 64, b.shape[1] // 64)](a, b, out, K=256, N=4096, BLOCK=64, STEP=32)
        return out
"""

NORMALIZE = """
@triton.jit
def squares(x_ptr, out_ptr, WIDTH: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH))
    tl.store(out_ptr + tl.program_id(0), tl.sum(x * x, 0))


@triton.jit
def divide(x_ptr, norm_ptr, out_ptr, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    tl.store(out_ptr + place, tl.load(x_ptr + place) / tl.load(norm_ptr))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        sums = torch.empty(x.shape[0], device=x.device)
        squares[(x.shape[0],)](x, sums, WIDTH=4096, num_warps=8)
        norm = sums.sum().sqrt()
        divide[(x.shape[0],)](x, norm, out, WIDTH=4096, num_warps=8)
        return out
"""

CALLS = {
    "elementwise": ("x", "torch.relu(x)", "torch.randn(65536, 4096)", ELEMENTWISE),
    "softmax": ("x", "torch.softmax(x, 1)", "torch.randn(65536, 4096)", SOFTMAX),
    "loss": ("x, y", "((x - y) ** 2).mean()", "torch.randn(16384, 4096), torch.randn(16384, 4096)", LOSS),
    "normalize": ("x", "x / torch.linalg.vector_norm(x)", "torch.randn(65536, 4096)", NORMALIZE),
    "matmul": ("a, b", "a @ b", "torch.randn(65536, 256), torch.randn(256, 4096)", MATMUL),
}
"""Parameters, result and inputs of an original, and a right kernel for it."""


def live_of(folder, name):
    parameters, result, inputs, _ = CALLS[name]
    folder.joinpath("reference.py").write_text(
        f"import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, {parameters}):\n"
        f"        return {result}\n\n\ndef get_inputs():\n    return [{inputs}]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    return load_target(folder, find_reference(str(folder / "reference.py")))


@contextlib.contextmanager
def most_used():
    """Yields a function that returns the most bytes of the GPU that were taken at once in the block."""
    torch.cuda.empty_cache()
    before, _ = torch.cuda.mem_get_info()
    least, end = [before], threading.Event()

    def watch():
        while not end.wait(0.001):
            least[0] = min(least[0], torch.cuda.mem_get_info()[0])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: before - least[0]
    finally:
        end.set()
        thread.join()


def verdict_on(live, text, budget):
    candidate = render(Completion("files", 0, text, format_of(text)), live, constructors(), on_gpu=True)
    try:
        with Judge(find_environment("cuda"), deadline=120, gpu_uuid="memory", gpu_memory=budget) as judge:
            return judge.judge(candidate, Criteria(live, min_speedup=0.0))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


@pytest.mark.parametrize("name", CALLS)
def test_a_verdict_takes_no_more_than_its_lease(name, tmp_path):
    live = live_of(tmp_path, name)
    needed = ReferenceOutputs(live, "cuda", Policy(), None).call.usual()
    with most_used() as used:
        verdict = verdict_on(live, IMPORTS + CALLS[name][-1], needed + GIB)
    assert verdict.accepted, verdict.reason
    [timing] = verdict.timing
    assert timing.note == ""
    assert timing.compiled is not None
    assert used() <= needed, f"{used() / GIB:.2f} GiB"


def test_what_does_not_fit_says_what_would_do(tmp_path):
    live = live_of(tmp_path, "elementwise")
    verdict = verdict_on(live, IMPORTS + ELEMENTWISE, 2 * GIB)
    assert verdict.verdict == "inconclusive"
    assert "GiB would do, and 2 GiB may be used" in verdict.reason
