"""The kernels of ``examples/quantised`` on a GPU, and what the judge asks of it."""

from pathlib import Path

import pytest
import torch

from kernelllm_judge import judge
from kernelllm_judge.core import accelerator

EXAMPLE = Path(__file__).parents[2] / "examples/quantised"
FILES = {
    "Int8Linear": "linear",
    "Int4Linear": "linear",
    "FP8Linear": "linear",
    "QuantizeFP8": "activations",
    "QuantizeInt8": "activations",
}


@pytest.mark.parametrize("layer", FILES)
def test_an_honest_kernel_is_accepted(layer):
    reference = f"{EXAMPLE / 'quantised' / FILES[layer]}.py::{layer}"
    found = judge(reference, EXAMPLE / "candidates" / f"{layer}.py", device="cuda")
    assert found.verdict.accepted, found.verdict.reason


def test_a_truncating_kernel_is_rejected(tmp_path):
    source = (EXAMPLE / "candidates" / "QuantizeFP8.py").read_text()
    cut = "((scaled.to(tl.int32, bitcast=True) >> 20) << 20).to(tl.float32, bitcast=True).to(tl.float8e4nv)"
    (tmp_path / "wrong.py").write_text(source.replace("scaled.to(tl.float8e4nv)", cut))
    reference = f"{EXAMPLE / 'quantised' / 'activations.py'}::QuantizeFP8"
    found = judge(reference, tmp_path / "wrong.py", device="cuda", timing=False)
    assert found.verdict.verdict == "rejected" and "is wrong at" in found.verdict.reason


def test_the_accelerator_answers():
    assert accelerator.gpu() == torch.device("cuda", 0) and accelerator.is_gpu("cuda:0")
    start, end = accelerator.timing_event(), accelerator.timing_event()
    peak = accelerator.PeakMemory()
    start.record()
    held = torch.ones(1 << 20, device=accelerator.gpu())
    end.record()
    accelerator.synchronize()
    assert start.elapsed_time(end) >= 0 and peak.bytes >= held.nbytes
    assert accelerator.in_use() and not accelerator.is_capturing()
    assert 0 < accelerator.free_bytes() < accelerator.total_bytes()
    del held
    accelerator.empty_cache()
    assert accelerator.cached_bytes() >= 0 and accelerator.random_state()
    accelerator.seed(1)
    first = torch.rand(3, device=accelerator.gpu())
    accelerator.seed(1)
    assert torch.equal(first, torch.rand(3, device=accelerator.gpu()))
