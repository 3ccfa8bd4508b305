"""A card too small for a case's own size: most of this GPU's memory is taken, and what was used comes back."""

import contextlib
import gc
import time

import pytest
import torch
from loading import load
from projects import GOOD, LAYERS

from kernelllm_judge.core.records import Completion
from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render

GIB = 1 << 30
N = 1 << 23
LARGE = LAYERS.replace("n=6", f"n={N}").replace('dims={"n": (1, 64)}', f'dims={{"n": (1, {N})}}')
"""2 GiB of input."""
FIXED = LAYERS.replace("n=6", f"n={N}").replace(', dims={"n": (1, 64)}', "")
HUGE = GOOD.replace(
    "    out = torch.empty_like(x)",
    "    out = torch.empty(1 << 42, dtype=torch.uint8, device=x.device)[: 4 * x.numel()].view(x.dtype).view(x.shape)",
)
HUNGRY = GOOD.replace(
    "    out = torch.empty_like(x)",
    "    scratch = torch.empty(6 * x.numel(), dtype=x.dtype, device=x.device)\n    out = torch.empty_like(x)",
)
"""Takes seven times its input."""
HOG = GOOD.replace(
    "    out = torch.empty_like(x)",
    "    kept = [torch.empty(1 << 30, dtype=torch.uint8, device=x.device) for _ in range(1000)]\n"
    "    out = torch.empty_like(x)",
)


@pytest.fixture
def judge():
    """One for each test: the memory that a judge and its workers keep would come back in the middle of another."""
    with Judge(find_environment("cuda"), deadline=60) as judge:
        yield judge


@pytest.fixture
def decide(judge, tmp_path):
    def decide(project, text, **criteria):
        path = tmp_path / "layers.py"
        path.write_text(project)
        live = load(path)
        candidate = render(Completion("files", 0, text, "kernel_module"), live, on_gpu=True)
        return judge.judge(candidate, Criteria(live, **criteria))

    return decide


def free():
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def wait_for(amount):
    """Waits until so many bytes are free: the memory of a worker comes back some time after its end."""
    end = time.monotonic() + 30.0
    while free() < amount:
        assert time.monotonic() < end, f"{amount - free():,} bytes are gone"


@pytest.fixture(scope="module")
def unused():
    """The bytes that are free before the first verdict."""
    return free()


@pytest.fixture
def left(unused):
    @contextlib.contextmanager
    def left(amount):
        """A GPU with so many bytes left."""
        wait_for(unused - GIB)
        ballast = torch.empty(free() - amount, dtype=torch.uint8, device="cuda")
        try:
            yield
        finally:
            del ballast
            torch.cuda.empty_cache()

    return left


def test_a_case_that_does_not_fit_is_timed_at_the_largest_size_that_does(decide, left):
    with left(12 * GIB):
        verdict = decide(LARGE, GOOD, min_speedup=0.0)
    assert verdict.accepted, verdict.reason
    [timing] = verdict.timing
    assert timing.note.startswith("timed at n="), timing
    assert timing.note.endswith(f"not {N}: there was no memory for more")
    assert GIB // 4 < timing.bytes < 4 * GIB


def test_where_there_is_memory_it_is_timed_at_its_own_size(decide):
    verdict = decide(LARGE, GOOD, min_speedup=0.0)
    assert verdict.accepted, verdict.reason
    [timing] = verdict.timing
    assert timing.note == ""
    assert timing.bytes > 4 * GIB


def test_a_case_that_cannot_be_smaller_is_inconclusive_and_says_what_helps(decide, left):
    with left(3 * GIB // 2):
        verdict = decide(FIXED, GOOD, min_speedup=0.0)
    assert verdict.verdict == "inconclusive"
    assert "memory" in verdict.reason
    assert "`dims`" in verdict.reason


def test_a_case_that_cannot_be_smaller_is_timed_without_torch_compile_if_only_that_takes_too_much(decide):
    more = "        if torch.compiler.is_compiling():\n            x = x + torch.rand(1 << 36, device=x.device).sort()[0][0].clamp(max=0)\n"
    wasteful = FIXED.replace("    def forward(self, x):\n", f"    def forward(self, x):\n{more}")
    assert more in wasteful
    verdict = decide(wasteful.replace(f"n={N}", "n=8192"), GOOD, min_speedup=0.0)
    assert verdict.accepted, verdict.reason
    [timing] = verdict.timing
    assert (timing.compiled, timing.speedup_compiled) == (None, None)
    assert timing.note == "timed without torch.compile: there was no memory for it"


def test_a_candidate_that_asks_for_what_no_gpu_has_is_rejected(decide):
    verdict = decide(LARGE, HUGE, timing=False)
    assert (verdict.verdict, verdict.rule) == ("rejected", "run")
    assert "out of memory" in verdict.reason


def test_a_candidate_that_finds_too_little_memory_is_timed_at_a_smaller_size_too(decide, left):
    half = LARGE.replace(str(N), str(N // 2))
    with left(13 * GIB):
        verdict = decide(half, HUNGRY, min_speedup=0.0)
    assert verdict.accepted, verdict.reason
    [timing] = verdict.timing
    assert timing.note.startswith("timed at n="), timing


def test_a_candidate_that_finds_too_little_memory_is_not_refused_for_it(decide, left):
    with left(6 * GIB):
        verdict = decide(FIXED.replace(str(N), str(N // 2)), HUNGRY, min_speedup=0.0)
    assert verdict.verdict == "inconclusive", verdict.reason
    assert "too little GPU memory" in verdict.reason


def test_no_candidate_takes_more_than_half_of_the_gpu(decide):
    verdict = decide(LARGE, HOG, timing=False)
    assert (verdict.verdict, verdict.rule) == ("rejected", "run")
    assert "out of memory" in verdict.reason


def test_the_memory_of_workers_comes_back(decide):
    decide(LARGE, GOOD, min_speedup=0.0)
    before = free()
    for _ in range(3):
        assert decide(LARGE, GOOD, min_speedup=0.0).accepted
    wait_for(before - GIB)
