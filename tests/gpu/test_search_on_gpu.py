"""The search on a GPU: what a measurement says, and what a whole run finds and keeps."""

import subprocess
import sys

import pytest
from loading import load
from projects import GOOD, LAYERS

from kernelllm_judge.core.records import Completion
from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render

WIDE = LAYERS.replace("n=6", "n=65536").replace('dims={"n": (1, 64)}', 'dims={"n": (1, 131072)}')

POOL = """
import torch
from torch import nn

from pytest_kernelllm import triton_candidate


@triton_candidate(inputs=lambda: torch.rand(4, 32, 64, 64, 64))
class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool3d(3, stride=2, padding=1)

    def forward(self, x):
        return self.pool(x)
"""


@pytest.fixture(scope="module")
def measure(tmp_path_factory):
    path = tmp_path_factory.mktemp("measured") / "layers.py"
    path.write_text(WIDE)
    live = load(path)
    with Judge(find_environment("cuda"), deadline=30) as judge:

        def measure(text):
            candidate = render(Completion("files", 0, text, "kernel_module"), live, on_gpu=True)
            return judge.measure(candidate, Criteria(live)), judge.judge(
                candidate, Criteria(live, min_speedup=0)
            )

        yield measure


def test_a_measurement_agrees_with_the_verdict(measure):
    measured, verdict = measure(GOOD)
    [time], [timing] = measured.cases, verdict.timing
    assert time.case == "default"
    assert time.microseconds == pytest.approx(timing.kernel.p50, rel=0.05, abs=1.0)
    assert time.roofline == pytest.approx(timing.roofline, rel=0.05)
    assert 0 < measured.seconds < 20


def test_what_cannot_run_says_why(measure):
    measured, _ = measure(GOOD.replace("tl.arange(0, WIDTH)", "tl.arange(0, WIDTH - 1)"))
    assert not measured.cases
    assert "power of 2" in measured.error


def test_a_run_finds_a_faster_program_and_keeps_what_it_measured(tmp_path):
    (tmp_path / "layers.py").write_text(POOL)
    options = ("--kernelllm-generator=inductor", "--kernelllm-samples=2", "--kernelllm-set=search=20", "-q")
    command = [sys.executable, "-m", "pytest", "--kernelllm", "-p", "no:cacheprovider", *options]

    def run():
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return sorted(tmp_path.glob(".kernelllm/targets/*/measurements/*.json"))

    measured = run()
    assert len(measured) > 2  # how many depends on what runs beside
    notes = [path.read_text() for path in tmp_path.glob(".kernelllm/targets/*/completions/*/0000.json")]
    assert any("searched: " in note and "not searched" not in note for note in notes), notes
    assert run() == measured
